#!/usr/bin/env bash
# Builds both container images by hack/image.sh with buildah, and checks them: each has one
# binary with its licenses and nothing else, but for the public certificate authorities in the
# controller's. The binary starts without any library, knows its version, and runs as an
# unprivileged user, or as root if it has to.
#
# The images are built on the Go image that the Dockerfile names, or on BUILD_IMAGE. Where that
# cannot be pulled, or there is no buildah, the test is skipped, and says so. `make test-image`
# runs this script.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${VERSION:?}" "${COMMIT:?}" "${DATE:?}" "${LDFLAGS:?}" # make test-image

skip() {
  echo "test-image: skipped: $*"
  exit 0
}
command -v buildah >/dev/null || skip "buildah is not installed (Debian: apt-get install buildah)"
# Without root, the files of an image belong to other users of a namespace.
[[ $(id -u) == 0 ]] || exec buildah unshare hack/test-image.sh
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot # which need the least of a machine
export ENGINE=buildah PLATFORMS='' PUSH=''
base=${BUILD_IMAGE:-$(sed -n 's/^ARG BUILD_IMAGE=//p' Dockerfile)}
log=$(buildah pull --quiet "${base}" 2>&1) || skip "${base} cannot be pulled: $(tail -n 1 <<<"${log}")"

# test_image PROGRAM USER FILES [FLAGS...] builds an image with these flags. It fails if the
# image has other files, or the program runs as another user or is another version.
test_image() {
  local program=$1 user=$2 files=$3 image=localhost/$1:test container got want
  IMAGE=${image} hack/image.sh --build-arg BUILD_IMAGE="${base}" "${@:4}"
  container=$(buildah from --pull-never "${image}")
  got=$(
    buildah inspect --type image --format '{{with .OCIv1}}{{.OS}} {{.Config.User}} {{.Config.Entrypoint}} {{.Config.Cmd}}{{"\n"}}{{end}}' "${image}"
    buildah inspect --type image --format '{{range $name, $value := .OCIv1.Config.Labels}}{{$name}}={{$value}}{{"\n"}}{{end}}' "${image}" |
      grep -E '^org.opencontainers.image.(version|revision|created|licenses)=' | sort
    (cd "$(buildah mount "${container}")" && find . -type f -printf '%m %U:%G %P\n' | LC_ALL=C sort)
    buildah run "${container}" -- "/${program}" -version | cut -d ' ' -f 1-4
  )
  buildah rm "${container}" >/dev/null
  want=$(
    echo "linux ${user}:${user} [/${program}] []"
    printf 'org.opencontainers.image.%s\n' "created=${DATE}" licenses=Apache-2.0 "revision=${COMMIT}" "version=${VERSION}"
    printf '%s\n' ${files} "755 0:0 ${program}" | sed 's/^[^7]/644 0:0 &/' | LC_ALL=C sort
    echo "${program} ${VERSION}, commit ${COMMIT},"
  )
  diff -u <(echo "${want}") <(echo "${got}") || { echo "test-image: ${image} is not as it should be" >&2 && exit 1; }
}
test_image controller 65532 'etc/ssl/certs/ca-certificates.crt licenses/licenses.txt'
test_image reboot-agent 0 licenses/licenses.txt --target reboot-agent # systemd accepts requests to reboot from root only
echo "test-image: passed after ${SECONDS}s"
