#!/usr/bin/env bash
# Builds a container image with docker, buildah or podman. `make image` runs this
# script with these environment variables:
#
#   IMAGE      the name and tag of the image
#   PROGRAM    the directory of the program; default: the Icecream controller's
#   PLATFORMS  such as linux/amd64,linux/arm64; default: both of these for an image that is
#              pushed, because nodes can differ from this machine, and else Linux on this
#              machine's processor
#   PUSH       if not empty, push the image to the registry that IMAGE names
#   ENGINE     docker, buildah or podman; default: the first of these that can
#
# When docker pushes an image, it attaches a bill of materials and the provenance of
# the build. The others cannot do this, and an image that is not pushed has neither.
#
# Arguments are passed to the engine, such as --build-arg BUILD_IMAGE=... for another base
# image.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${IMAGE:?}" "${VERSION:?}" "${COMMIT:?}" "${DATE:?}" "${LDFLAGS:?}" # make image

# It reads all files of an image, so a digest says which it is.
sbom_generator=docker/buildkit-syft-scanner:1.12.0@sha256:ae4f3b554449e7e25548e7d8ccc029d17357348e30c6e3df01b92bc93654d6a9

own=linux/$(go env GOHOSTARCH)
platforms=${PLATFORMS:-${PUSH:+linux/amd64,linux/arm64}}
platforms=${platforms:-${own}}

# lacks COMMAND... -- FLAG... prints the first of the flags that the command's help does not
# list. A program that has the name of another, or an old version, has other flags.
lacks() {
  local command=() help
  while [[ $1 != -- ]]; do
    command+=("$1")
    shift
  done
  help=$("${command[@]}" --help 2>&1 || true)
  for flag in "${@:2}"; do
    grep -qE -e "(^|[ ,])${flag}([ =,]|\$)" <<<"${help}" || { echo "${flag}" && return; }
  done
}

# why_not ENGINE prints why an engine cannot build what is asked for, and what helps. It
# prints nothing if the engine can.
why_not() {
  local flag
  if ! command -v "$1" >/dev/null; then
    echo "it is not installed"
  elif ! "$1" info >/dev/null 2>&1; then
    echo "'$1 info' fails: start its engine"
  elif [[ $1 == docker ]]; then
    flag=$(lacks docker buildx build -- --platform --provenance ${PUSH:+--push --sbom} $([[ -n ${PUSH:-} ]] || echo --load))
    if [[ -n ${flag} ]]; then
      echo "'docker buildx build' has no ${flag}: install buildx 0.10 or later, unless docker is podman's name here"
    elif docker info --format '{{.DriverStatus}}' | grep -q io.containerd.snapshotter; then
      return # this store keeps everything, with every builder
    elif [[ -n ${PUSH:-} ]] && docker buildx inspect | grep -qE '^Driver: +docker$'; then
      echo "its builder attaches no bill of materials: run 'docker buildx create --use'"
    elif [[ -z ${PUSH:-} && ${platforms} == *,* ]]; then
      echo "its store keeps images for one platform only: set PUSH=1, or turn on its containerd image store"
    fi
  else
    flag=$(lacks "$1" build -- --platform --timestamp --manifest)
    [[ -z ${flag} ]] || echo "'$1 build' has no ${flag}: install a newer version"
  fi
}

engine='' problems=''
for candidate in ${ENGINE:-docker buildah podman}; do
  problem=$(why_not "${candidate}")
  if [[ -z ${problem} ]]; then
    engine=${candidate}
    break
  fi
  problems+="${problems:+; }${candidate}: ${problem}"
done
if [[ -z ${engine} ]]; then
  echo "image: nothing can build ${IMAGE} for ${platforms}: ${problems}" >&2
  exit 1
fi

# dockerfile prints the Dockerfile, in which an entry point cannot be an argument. A program that
# is part of another, such as apps/NAME/agent, keeps its name.
dockerfile() {
  local binary=controller
  [[ ${PROGRAM} != apps/*/* ]] || binary=${PROGRAM##*/}
  sed "s|/controller|/${binary}|g" Dockerfile
}

PROGRAM=${PROGRAM:-.}
flags=(--file - --platform "${platforms}" --build-arg PROGRAM="${PROGRAM}" --build-arg LDFLAGS="${LDFLAGS}")
for label in title="$(basename "${IMAGE%:*}")" version="${VERSION}" revision="${COMMIT}" created="${DATE}" licenses=Apache-2.0 \
  source="${SOURCE:-https://nicoleh.io/k8s-controller}"; do
  flags+=(--label "org.opencontainers.image.${label}")
done

# The creation date of the image is the date of the commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0)
export SOURCE_DATE_EPOCH

echo "image: building ${IMAGE} for ${platforms} with ${engine}"
case ${engine} in
  docker)
    if [[ -n ${PUSH:-} ]]; then
      flags+=(--push --sbom="generator=${sbom_generator}" --provenance=mode=max)
    else
      flags+=(--load --provenance=false)
    fi
    docker buildx build --tag "${IMAGE}" "${flags[@]}" "$@" . < <(dockerfile)
    ;;
  buildah | podman)
    # They cannot replace an existing manifest list.
    if "${engine}" manifest exists "${IMAGE}"; then
      "${engine}" manifest rm "${IMAGE}" >/dev/null
    fi
    if [[ ${platforms} == *,* ]]; then
      flags+=(--manifest "${IMAGE}")
    else
      flags+=(--tag "${IMAGE}")
    fi
    # Old versions of buildah do not set BUILDPLATFORM, and would then run Go on the
    # platform of the image.
    flags+=(--build-arg BUILDPLATFORM="${own}")
    "${engine}" build --timestamp "${SOURCE_DATE_EPOCH}" "${flags[@]}" "$@" . < <(dockerfile)
    if [[ -n ${PUSH:-} ]]; then
      if [[ ${platforms} == *,* ]]; then
        "${engine}" manifest push --all "${IMAGE}" "docker://${IMAGE}"
      else
        "${engine}" push "${IMAGE}"
      fi
      echo "image: pushed without a bill of materials and provenance, which only docker attaches"
    fi
    ;;
esac
