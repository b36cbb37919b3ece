#!/usr/bin/env bash
# Runs golangci-lint with .golangci.yaml on every Go module of this repository. For
# hack/local-cluster/parts it only checks the format, because loading the types would
# compile Kubernetes. Arguments are packages of the root module, to look at no others.
# To repair: run make fmt, and then do what the messages say.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
set -a
# shellcheck source=hack/build.env
. hack/build.env
set +a
root=${PWD}
status=0

golangci_lint=$(hack/tool.sh golangci-lint)

"${golangci_lint}" fmt --diff || status=1
if (($# > 0)); then
  "${golangci_lint}" run "$@"
  exit "${status}"
fi
while IFS= read -r file; do
  module=$(dirname "${file}")
  if [[ ${module} == hack/local-cluster/parts ]]; then
    continue
  fi
  echo "${module}"
  (cd "${module}" && "${golangci_lint}" run --config "${root}/.golangci.yaml" ./...) || status=1
done < <(git ls-files --cached --others --exclude-standard -- 'go.mod' '**/go.mod')
exit "${status}"
