#!/usr/bin/env bash
# Checks that no file lies twice in the tree. There are two exceptions:
# CustomResourceDefinitions, which Helm reads only inside of the chart, and what client-gen
# writes for each of two APIs. Empty files are no copies.
# To repair: keep one of them, and have the other place say where it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly empty=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
copies=$(git ls-files -z --cached --others --exclude-standard | grep -zvE '^artifacts/examples/crd-[a-z]+\.yaml$|(^|/)generated/' |
  xargs -0 sha256sum | grep -v "^${empty}" | sort -u | uniq --check-chars=64 --all-repeated=separate | cut -c 67-)
if [[ -n ${copies} ]]; then
  echo "The same, more than once:"
  echo "${copies}"
  exit 1
fi
