#!/usr/bin/env bash
# Builds the container images by hack/image.sh, without a registry, and checks them:
# each image contains one static binary with its licenses and nothing else, except the public
# certificate authorities in the controller's. The binary is identical to that of a release, knows its
# version, and runs as an unprivileged user, or as root if it has to.
#
# The images are built by buildah in a temporary directory. The base is an empty image
# into which this machine's Go, shell and caches are mounted, so nothing is downloaded,
# and nothing is compiled that is in the cache. If the real Go image that the Dockerfile
# pins by its digest can be pulled, the images are built once more with that one, and
# the binaries must be the same.
#
# The test is skipped, and prints the reason, if buildah is not installed or does not
# work. `make test-image` runs this script.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
set -a
# shellcheck source=hack/build.env
. hack/build.env
set +a
: "${VERSION:?}" "${COMMIT:?}" "${DATE:?}" "${LDFLAGS:?}" # make test-image

skip() {
  echo "test-image: skipped: $*"
  exit 0
}
[[ $(go env GOHOSTOS) == linux ]] || skip "it needs Linux"
command -v buildah >/dev/null || skip "buildah is not installed (Debian: apt-get install buildah)"

# The version of Go that go.mod pins, as in hack/release.sh and the Dockerfile.
GOTOOLCHAIN=$(sed -n 's/^toolchain //p' go.mod)
export GOTOOLCHAIN

temp=$(mktemp -d "${TMPDIR:-/tmp}/test-image.XXXXXX")
chmod 755 "${temp}" # the user of the image reads it
# If buildah runs without root, some files belong to other users of its user namespace.
trap 'rm -rf "${temp}" 2>/dev/null || buildah unshare rm -rf "${temp}"' EXIT

export CONTAINERS_STORAGE_CONF=${temp}/storage.conf BUILDAH_ISOLATION=chroot TMPDIR=${temp}
cat >"${CONTAINERS_STORAGE_CONF}" <<EOF
[storage]
driver = "vfs"
graphroot = "${temp}/storage"
runroot = "${temp}/run"
EOF

# --- The base ------------------------------------------------------------------

base=localhost/local-go
goroot=$(go env GOROOT) modules=$(go env GOMODCACHE) cache=$(go env GOCACHE)
mkdir -p "${modules}" "${cache}" "${temp}/tmp"
CGO_ENABLED=0 go list -deps ./... >/dev/null # downloads missing modules, which the build cannot do

mounts=(--volume "${modules}:/own/modules" --volume "${cache}:/own/build" --volume "${temp}/tmp:/tmp")
for dir in /usr /bin /lib /lib64 /etc/ssl "${goroot}"; do
  if [[ -d ${dir} && ${dir} != /usr/*/* ]]; then
    mounts+=(--volume "${dir}:${dir}:ro")
  fi
done

# make_base builds the base image. If buildah lacks a permission on this machine, it
# fails here already.
make_base() {
  local container
  container=$(buildah from scratch) &&
    buildah config --env "PATH=${goroot}/bin:/usr/bin:/bin" \
      --env GOTOOLCHAIN=local --env GOPROXY=off \
      --env GOMODCACHE=/own/modules --env GOCACHE=/own/build "${container}" &&
    buildah run "${mounts[@]}" "${container}" -- /bin/sh -c 'go version' &&
    buildah commit --quiet "${container}" "${base}"
}
if ! make_base >"${temp}/log" 2>&1; then
  skip "buildah cannot run a container here: $(tr '\n' ' ' <"${temp}/log")"
fi

# --- The images ----------------------------------------------------------------

# quiet COMMAND... runs a command, and prints its output only if it fails.
quiet() {
  if ! "$@" >"${temp}/log" 2>&1; then
    cat "${temp}/log"
    echo "test-image: failed: $*" >&2
    exit 1
  fi
}
PLATFORMS=linux/$(go env GOHOSTARCH) DIST=${temp}/dist quiet hack/release.sh

status=0
# expect WHAT GOT WANT compares two values, and fails the test if they differ.
expect() {
  if [[ $2 == "$3" ]]; then
    echo "ok: ${program}: $1"
  else
    printf 'test-image: %s: %s: got\n%s\nwant\n%s\n' "${program}" "$1" "$2" "$3" >&2
    status=1
  fi
}

config() { buildah inspect --type image --format "{{$1}}" "${IMAGE}"; }
label() { config "index .OCIv1.Config.Labels \"org.opencontainers.image.$1\""; }

# build_image [FLAGS...] builds ${IMAGE} on the image ${base}.
build_image() {
  local flags=()
  if [[ ${base} == localhost/* ]]; then
    flags=("${mounts[@]}")
  fi
  quiet hack/image.sh "${flags[@]}" --build-arg BUILD_IMAGE="${base}" "$@"
}

# test_image PROGRAM USER FILE [FLAGS...] builds an image with these flags, and checks that
# it contains only the program, its licenses and the file, if it is not empty, and that the
# program runs as the user and is the same as in a release.
test_image() {
  local program=$1 user=$2 name file names container digest
  export IMAGE=localhost/$1:test ENGINE=buildah PLATFORMS='' PUSH=''
  build_image "${@:4}"

  expect "the user" "$(config .OCIv1.Config.User)" "${user}:${user}"
  expect "the entry point" "$(config .OCIv1.Config.Entrypoint)" "[/${program}]"
  expect "the command" "$(config .OCIv1.Config.Cmd)" '[]'
  expect "the platform" "$(config .OCIv1.OS)/$(config .OCIv1.Architecture)" "$(go env GOHOSTOS)/$(go env GOHOSTARCH)"
  expect "the label for the version" "$(label version)" "${VERSION}"
  expect "the label for the revision" "$(label revision)" "${COMMIT}"
  expect "the label for the date" "$(label created)" "${DATE}"
  expect "the label for the license" "$(label licenses)" Apache-2.0
  for name in title description source; do
    expect "the presence of the label ${name}" "$([[ -n $(label "${name}") ]] && echo yes)" yes
  done

  # The image must have one layer: the only tar archive among its files.
  local tree='' layers=0
  rm -rf "${temp}/${program}.image"
  quiet buildah push "${IMAGE}" "dir:${temp}/${program}.image"
  rm -rf "${temp}/${program}.tree"
  mkdir "${temp}/${program}.tree"
  for file in "${temp}/${program}.image"/*; do
    if names=$(tar --numeric-owner -tvf "${file}" 2>/dev/null); then
      tree+=$(awk '{ print $1, $2, $NF }' <<<"${names}")$'\n'
      tar -xf "${file}" -C "${temp}/${program}.tree"
      layers=$((layers + 1))
    fi
  done
  expect "the number of layers" "${layers}" 1
  # Directories are left out: they need no update.
  expect "the files in it" "$(grep -v -e '^d' -e '^$' <<<"${tree}" | LC_ALL=C sort)" \
    "$(printf '%s\n' "-rwxr-xr-x 0/0 ${program}" '-rw-r--r-- 0/0 licenses/licenses.txt' ${3:+"-rw-r--r-- 0/0 $3"} | LC_ALL=C sort)"

  container=$(buildah from --pull-never "${IMAGE}")
  expect "the output of -version" "$(buildah run "${container}" -- "/${program}" -version)" \
    "${program} ${VERSION}, commit ${COMMIT}, $(go env GOVERSION), linux/$(go env GOHOSTARCH)"
  expect "the user ID of its processes" "$(buildah run "${mounts[@]}" "${container}" -- /usr/bin/id -u)" "${user}"

  for file in "${program}" licenses/licenses.txt; do
    digest=$(sha256sum "${temp}/${program}.tree/${file}")
    expect "the digest of ${file}" "${digest%% *}" \
      "$(awk -v end="${file#"${program}"}" -v program="${program}" 'index($2, program "_") == 1 && $2 ~ (end ? "licenses.txt$" : "_[a-z0-9]+$") { print $1 }' "${temp}/dist/SHA256SUMS")"
  done
}

test_images() {
  test_image controller 65532 etc/ssl/certs/ca-certificates.crt
  test_image reboot-agent 0 '' --target reboot-agent # systemd accepts requests to reboot from root only
}
test_images

base=$(sed -n 's/^ARG BUILD_IMAGE=//p' Dockerfile)
if buildah pull --quiet "${base}" >"${temp}/log" 2>&1; then
  echo "test-image: building on ${base}"
  test_images
else
  echo "test-image: not tested on ${base}, which cannot be pulled: $(tail -n 1 "${temp}/log")"
fi

if ((status == 0)); then
  echo "test-image: passed after ${SECONDS}s"
fi
exit "${status}"
