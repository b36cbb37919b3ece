#!/usr/bin/env bash
# Makes a release twice, from two clones of this commit that share neither their
# directory nor a cache, time zone or umask, and compares all digests. Then it
# holds every bill of materials against CycloneDX's schema and against what the
# binary itself says, and asks each binary for its version.
#
# It is this machine's own platform that is made: PLATFORMS=linux/amd64,darwin/arm64
# takes others. What is not committed is not tested. `make test-release` runs it.
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
mkdir -p "${modules}"
ln -s "${modules}" "${temp}/modules"
make -C "${first}" release
(
  umask 077
  export TZ=Pacific/Auckland GOCACHE=${temp}/cache GOMODCACHE=${temp}/modules
  make -C "${second}" release
)

fail() {
  echo "test-release: $*" >&2
  exit 1
}
diff -u "${first}/dist/SHA256SUMS" "${second}/dist/SHA256SUMS" || fail "two releases of one commit differ"
diff <(cd "${first}/dist" && find . -type f | sort) <(cd "${second}/dist" && find . -type f | sort) ||
  fail "two releases of one commit have different files"

go -C hack/tools test -count=1 ./release -args -dist "${first}/dist"

if [[ ,${PLATFORMS}, == *,${own},* ]]; then
  commit=$(git -C "${first}" rev-parse HEAD)
  for binary in "${first}"/dist/*_"${own/\//_}"; do
    version=$("${binary}" -version)
    [[ ${version} == *" v"*", commit ${commit}, ${toolchain}, ${own}" ]] ||
      fail "${binary##*/} of commit ${commit} says it is ${version}"
  done
fi
echo "test-release: all is well, after ${SECONDS}s"
cat "${first}/dist/SHA256SUMS"
