#!/usr/bin/env bash
# Checks that every YAML file in artifacts/ consists of objects that kubectl can apply:
# valid YAML without duplicate keys, with apiVersion, kind and name.
# To repair: edit the file. The message has the number of the document in the file.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

temp=$(mktemp -d)
trap 'rm -rf "${temp}"' EXIT
go build -C hack/tools -o "${temp}/" ./verify-manifests
git ls-files -z --cached --others --exclude-standard -- 'artifacts/*.yaml' 'artifacts/*.yml' |
  xargs -0 "${temp}/verify-manifests"
