#!/usr/bin/env bash
# Builds the files of a release: the Icecream controller for each platform, the programs in apps
# for each Linux platform, a CycloneDX bill of materials and the licenses of what is linked in for
# each binary, and the checksums of all these files. The binaries depend on the commit alone, not on the machine
# or the directory: they are compiled by the version of Go that go.mod pins, which is
# downloaded if another version is installed. hack/test-release.sh tests this.
#
# `make release` runs this script with these environment variables:
#
#   PLATFORMS  such as linux/amd64,linux/arm64; default: all platforms
#   DIST       the output directory; default: dist
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${VERSION:?}" "${LDFLAGS:?}" # make release
dist=${DIST:-dist}
platforms=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64}

# Settings of the environment must not affect a release.
set -a
# shellcheck source=hack/build.env
. hack/build.env
set +a
export GOAMD64=v1 GOARM64=v8.0 GOFIPS140=off
GOTOOLCHAIN=$(sed -n 's/^toolchain //p' go.mod)
export GOTOOLCHAIN

checksums() {
  if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi
}

temp=$(mktemp -d)
trap 'rm -rf "${temp}"' EXIT
go build -C hack/tools -o "${temp}/sbom" github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
go build -o "${temp}/licenses" ./hack/licenses

mkdir -p "${dist}"
rm -f "${dist}"/*_v[0-9]*_* "${dist}/SHA256SUMS"

# release PROGRAM PACKAGE PLATFORM builds a binary, its bill of materials and its licenses.
release() {
  local name=$1_${VERSION}_${3/\//_}
  local binary=${name}
  if [[ $3 == windows/* ]]; then
    binary=${name}.exe
  fi
  echo "${dist}/${binary}"
  GOOS=${3%/*} GOARCH=${3#*/} go build -ldflags "${LDFLAGS}" -o "${dist}/${binary}" "$2"
  # GOPROXY: the licenses are read from the modules that the build has downloaded.
  GOPROXY=off "${temp}/sbom" bin -json -std -licenses -noserial -notimestamp -version "${VERSION}" \
    -output "${dist}/${name}.cdx.json" "${dist}/${binary}" 2>"${temp}/log" || { cat "${temp}/log" >&2 && exit 1; }
  "${temp}/licenses" "${dist}/${binary}" >"${dist}/${name}.licenses.txt"
}
shopt -s nullglob # without apps
for platform in ${platforms//,/ }; do
  release controller . "${platform}"
  [[ ${platform} == linux/* ]] || continue # the others run in a cluster
  for main in apps/*/main.go apps/*/*/main.go; do
    app=$(dirname "${main}")
    release "$(basename "${app}")" "./${app}" "${platform}"
  done
done
(
  cd "${dist}"
  export LC_ALL=C
  checksums *_"${VERSION}"_* >SHA256SUMS
)
