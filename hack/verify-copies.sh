#!/usr/bin/env bash
# Checks that no file lies twice in the tree. There are two exceptions:
# CustomResourceDefinitions, which Helm reads only inside of the chart, and what client-gen
# writes for each of two APIs. Empty files are no copies.
# To repair: keep one of them, and have the other place say where it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
empty=$(git hash-object --stdin </dev/null)
copies=$(git ls-files --stage | grep -vE $'\t(artifacts/examples/crd-[a-z0-9]+\.yaml$|(.*/)?generated/)' |
  awk -F '[ \t]' -v empty="${empty}" '$2 == empty { next } $2 in first { print first[$2] " and " $4 } { first[$2] = $4 }')
if [[ -n ${copies} ]]; then
  echo "The same, more than once:"
  echo "${copies}"
  exit 1
fi
