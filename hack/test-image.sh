#!/usr/bin/env bash
# Builds a container image by hack/image.sh with buildah, and checks it: it has one binary with
# its licenses, the public certificate authorities, and nothing else. The binary starts without
# any library, knows its version, and runs as an unprivileged user.
#
#   PROGRAM  the directory of the program; default: the Icecream controller's
#
# The image is built on the Go image that the Dockerfile names, or on BUILD_IMAGE. Where that
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

image=localhost/test-image:test
IMAGE=${image} hack/image.sh --build-arg BUILD_IMAGE="${base}"
container=$(buildah from --pull-never "${image}")
name=controller binary=controller
case ${PROGRAM:-.} in
  apps/*/*) name=${PROGRAM##*/} binary=${name} ;;
  apps/*) name=${PROGRAM#*/} ;;
esac
got=$(
  buildah inspect --type image --format '{{with .OCIv1}}{{.OS}} {{.Config.User}} {{.Config.Entrypoint}} {{.Config.Cmd}}{{"\n"}}{{end}}' "${image}"
  buildah inspect --type image --format '{{range $name, $value := .OCIv1.Config.Labels}}{{$name}}={{$value}}{{"\n"}}{{end}}' "${image}" |
    grep -E '^org.opencontainers.image.(version|revision|created|licenses)=' | sort
  (cd "$(buildah mount "${container}")" && find . -type f -printf '%m %U:%G %P\n' | LC_ALL=C sort)
  buildah run "${container}" -- "/${binary}" -version | cut -d ' ' -f 1-4
)
buildah rm "${container}" >/dev/null
want=$(
  echo "linux 65532:65532 [/${binary}] []"
  printf 'org.opencontainers.image.%s\n' "created=${DATE}" licenses=Apache-2.0 "revision=${COMMIT}" "version=${VERSION}"
  printf '%s\n' '644 0:0 etc/ssl/certs/ca-certificates.crt' '644 0:0 licenses/licenses.txt' "755 0:0 ${binary}" | LC_ALL=C sort
  echo "${name} ${VERSION}, commit ${COMMIT},"
)
diff -u <(echo "${want}") <(echo "${got}") || { echo "test-image: the image of ${name} is not as it should be" >&2 && exit 1; }
echo "test-image: passed after ${SECONDS}s"
