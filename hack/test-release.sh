#!/usr/bin/env bash
# Builds a release twice, from two clones of this commit with different directories,
# caches, time zones and umasks, and compares all digests. Then it checks that every bill of
# materials and every list of licenses has the modules in its binary, the version that
# each binary reports, and that manifests and chart name pushed images alone. The
# second cache is kept in the user's cache directory, because compiling everything again
# takes minutes.
#
# By default it builds for this machine's platform only; to build for others, set for
# example PLATFORMS=linux/amd64,darwin/arm64. Changes that are not committed are not
# tested. `make test-release` runs this script.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
own=$(go env GOHOSTOS)/$(go env GOHOSTARCH)
export PLATFORMS=${PLATFORMS:-${own}}
toolchain=$(sed -n 's/^toolchain //p' go.mod)
unset DIST

temp=$(mktemp -d "${TMPDIR:-/tmp}/test-release.XXXXXX")
trap 'rm -rf "${temp}"' EXIT
first=${temp}/first second=${temp}/another/directory/second
git clone --quiet . "${first}"
git clone --quiet . "${second}"

modules=$(go env GOMODCACHE)
cache=$(dirname "$(go env GOCACHE)")/k8s-controller/release
mkdir -p "${modules}" "${cache}"
ln -s "${modules}" "${temp}/modules"
make -C "${first}" release
(
  umask 077
  export TZ=Pacific/Auckland GOCACHE=${cache} GOMODCACHE=${temp}/modules
  make -C "${second}" release
)

fail() {
  echo "test-release: $*" >&2
  exit 1
}
diff -u "${first}/dist/SHA256SUMS" "${second}/dist/SHA256SUMS" || fail "two releases of the same commit differ"
diff <(cd "${first}/dist" && find . -type f | sort) <(cd "${second}/dist" && find . -type f | sort) ||
  fail "two releases of the same commit have different files"

# Nothing was pushed, so the digests of the images are made up.
for main in . apps/*/main.go apps/*/*/main.go; do
  [[ -e ${main} ]] || continue
  name=$(basename "$(dirname "${main}")")
  [[ ${main} != . ]] || name=k8s-controller
  echo "registry.example/${name}@sha256:${name}"
done >"${first}/dist/images.txt"
VERSION=v1.2.3 REGISTRY=registry.example "${first}/hack/release-manifests.sh"
"$(hack/tool.sh helm)" template icecream "${first}"/dist/*.tgz | grep -q ' image: registry.example/k8s-controller:v1.2.3$' || fail "the chart has another image"

for bill in "${first}"/dist/*.cdx.json; do
  binary=${bill%.cdx.json}
  [[ -e ${binary} ]] || binary+=.exe
  go version -m "${binary}" | awk '$1 == "dep" { print $2 "@" $3 }' | while read -r module; do
    grep -qF "pkg:golang/${module}" "${bill}" || fail "${bill##*/} does not list ${module}"
    grep -qF "${module/@/ }: " "${bill%.cdx.json}.licenses.txt" || fail "there is no license of ${module}"
  done
done

if [[ ,${PLATFORMS}, == *,${own},* ]]; then
  commit=$(git -C "${first}" rev-parse HEAD)
  for binary in "${first}"/dist/*_"${own/\//_}"; do
    version=$("${binary}" -version)
    [[ ${version} == *" v"*", commit ${commit}, ${toolchain}, ${own}" ]] ||
      fail "${binary##*/} of commit ${commit} reports the version ${version}"
  done
fi
echo "test-release: passed after ${SECONDS}s"
cat "${first}/dist/SHA256SUMS"
