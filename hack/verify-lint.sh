#!/usr/bin/env bash
# Runs golangci-lint, as .golangci.yaml configures it, over every Go module of
# this repository. hack/local-cluster/parts is only checked for its format: to
# know its types is to compile Kubernetes.
# Repair: make fmt, then what the complaint says.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=${PWD}
status=0

lint() { go tool -modfile="${root}/hack/tools/go.mod" golangci-lint "$@"; }

lint fmt --diff || status=1
while IFS= read -r file; do
  module=$(dirname "${file}")
  if [[ ${module} == hack/local-cluster/parts ]]; then
    continue
  fi
  echo "${module}"
  (cd "${module}" && lint run --config "${root}/.golangci.yaml" ./...) || status=1
done < <(git ls-files --cached --others --exclude-standard -- 'go.mod' '**/go.mod')
exit "${status}"
