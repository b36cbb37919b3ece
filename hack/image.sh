#!/usr/bin/env bash
# Builds the container image, with docker or buildah, whichever is there and
# works. `make image` runs it, and says in the environment what to build:
#
#   IMAGE      its name and tag
#   PLATFORMS  such as linux/amd64,linux/arm64; default: Linux on this processor
#   PUSH       if not empty: push it to the registry that its name begins with
#   ENGINE     docker or buildah, in place of the first that works
#
# docker attaches to an image that it pushes a bill of materials and the provenance of
# the build; buildah has nothing of the kind, and without a push there is nothing that
# they could be attached to.
#
# Arguments go to the engine: --target reboot-agent for the image of nodereboot's
# agent, --build-arg BUILD_IMAGE=... for another base.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${IMAGE:?}" "${VERSION:?}" "${COMMIT:?}" "${DATE:?}" "${LDFLAGS:?}" # make image

# A docker client says nothing about an engine, and cache mounts take buildx.
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
  echo "image: this takes docker (buildx, and an engine that runs) or buildah; here is neither" >&2
  exit 1
fi

platforms=${PLATFORMS:-linux/$(go env GOHOSTARCH)}
flags=(--file Dockerfile --platform "${platforms}" --build-arg LDFLAGS="${LDFLAGS}")
for label in version="${VERSION}" revision="${COMMIT}" created="${DATE}" licenses=Apache-2.0 \
  source="${SOURCE:-https://nicoleh.io/k8s-controller}"; do
  flags+=(--label "org.opencontainers.image.${label}")
done

# The image gets the commit's date.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0)
export SOURCE_DATE_EPOCH

echo "image: ${IMAGE}, by ${engine}"
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
    # A list of images cannot be built into one that is already there.
    if buildah manifest exists "${IMAGE}"; then
      buildah manifest rm "${IMAGE}" >/dev/null
    fi
    if [[ ${platforms} == *,* ]]; then
      flags+=(--manifest "${IMAGE}")
    else
      flags+=(--tag "${IMAGE}")
    fi
    # Old ones do not know it, and would take a Go of the image's platform.
    flags+=(--build-arg BUILDPLATFORM="linux/$(go env GOHOSTARCH)")
    buildah build --timestamp "${SOURCE_DATE_EPOCH}" "${flags[@]}" "$@" .
    if [[ -n ${PUSH:-} ]]; then
      if [[ ${platforms} == *,* ]]; then
        buildah manifest push --all "${IMAGE}" "docker://${IMAGE}"
      else
        buildah push "${IMAGE}"
      fi
      echo "image: pushed without a bill of materials and provenance, which docker attaches"
    fi
    ;;
esac
