#!/usr/bin/env bash
# Builds the container image with docker or buildah, whichever is installed and
# works. `make image` runs this script with these environment variables:
#
#   IMAGE      the name and tag of the image
#   PLATFORMS  such as linux/amd64,linux/arm64; default: Linux on this machine's processor
#   PUSH       if not empty, push the image to the registry that IMAGE names
#   ENGINE     docker or buildah; default: the first of these that works
#
# When docker pushes an image, it attaches a bill of materials and the provenance of
# the build. buildah cannot do this, and an image that is not pushed has neither.
#
# Arguments are passed to the engine, such as --target for another image than
# the controller's, or --build-arg BUILD_IMAGE=... for another base image.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${IMAGE:?}" "${VERSION:?}" "${COMMIT:?}" "${DATE:?}" "${LDFLAGS:?}" # make image

# works ENGINE reports whether an engine can build images. An installed docker client
# does not mean that the engine is running, and cache mounts need buildx.
works() {
  case $1 in
    docker) docker buildx version && docker info ;;
    buildah) buildah version ;;
    *) false ;;
  esac >/dev/null 2>&1
}

engine=
for candidate in ${ENGINE:-docker buildah}; do
  if works "${candidate}"; then
    engine=${candidate}
    break
  fi
done
if [[ -z ${engine} ]]; then
  echo "image: neither docker (with buildx and a running engine) nor buildah works on this machine" >&2
  exit 1
fi

platforms=${PLATFORMS:-linux/$(go env GOHOSTARCH)}
flags=(--file Dockerfile --platform "${platforms}" --build-arg LDFLAGS="${LDFLAGS}")
for label in version="${VERSION}" revision="${COMMIT}" created="${DATE}" licenses=Apache-2.0 \
  source="${SOURCE:-https://nicoleh.io/k8s-controller}"; do
  flags+=(--label "org.opencontainers.image.${label}")
done

# The creation date of the image is the date of the commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0)
export SOURCE_DATE_EPOCH

echo "image: building ${IMAGE} with ${engine}"
case ${engine} in
  docker)
    if [[ -n ${PUSH:-} ]]; then
      flags+=(--push --sbom=true --provenance=mode=max)
    else
      flags+=(--load --provenance=false)
    fi
    docker buildx build --tag "${IMAGE}" "${flags[@]}" "$@" .
    ;;
  buildah)
    # buildah cannot replace an existing manifest list.
    if buildah manifest exists "${IMAGE}"; then
      buildah manifest rm "${IMAGE}" >/dev/null
    fi
    if [[ ${platforms} == *,* ]]; then
      flags+=(--manifest "${IMAGE}")
    else
      flags+=(--tag "${IMAGE}")
    fi
    # Old versions of buildah do not set BUILDPLATFORM, and would then run Go on the
    # platform of the image.
    flags+=(--build-arg BUILDPLATFORM="linux/$(go env GOHOSTARCH)")
    buildah build --timestamp "${SOURCE_DATE_EPOCH}" "${flags[@]}" "$@" .
    if [[ -n ${PUSH:-} ]]; then
      if [[ ${platforms} == *,* ]]; then
        buildah manifest push --all "${IMAGE}" "docker://${IMAGE}"
      else
        buildah push "${IMAGE}"
      fi
      echo "image: pushed without a bill of materials and provenance, which only docker attaches"
    fi
    ;;
esac
