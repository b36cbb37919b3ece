#!/usr/bin/env bash
# Checks that pkg/, artifacts/, docs/ and apps/ hold what hack/update-codegen.sh writes, no
# more and no less. It generates in a copy, so the tree stays as it is. That copy has its
# modules in a directory vendor and lies below somebody's go.work, which is in the way of
# neither generators nor formatter and linter.
# To repair: run hack/update-codegen.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

temp=$(mktemp -d)
trap 'rm -rf "${temp}"' EXIT

# The current state of all files that git tracks, and of new ones that it does not ignore.
git ls-files -z --cached --others --exclude-standard |
  while IFS= read -r -d '' file; do
    if [[ -e ${file} || -L ${file} ]]; then
      printf '%s\0' "${file}"
    fi
  done >"${temp}/files"
mkdir "${temp}/tree" "${temp}/generated"
tar --null -T "${temp}/files" -cf - | tar -xf - -C "${temp}/tree"
cp -R "${temp}/tree/." "${temp}/generated"

unset GOFLAGS GOWORK CGO_ENABLED
echo 'go 1.26.0' >"${temp}/go.work"
(cd "${temp}/generated" && set -a && . hack/build.env && go mod vendor)
"${temp}/generated/hack/update-codegen.sh"
make -C "${temp}/generated" fmt
"${temp}/generated/hack/verify-lint.sh" ./internal/text

cd "${temp}"
drift=0
dirs=(pkg artifacts docs)
dirs+=(examples/database)
[[ ! -d tree/apps ]] || dirs+=(apps)
for dir in "${dirs[@]}"; do
  diff -ruN "tree/${dir}" "generated/${dir}" || drift=1
done
if ((drift)); then
  echo "Generated files are not up to date: run hack/update-codegen.sh"
  exit 1
fi
