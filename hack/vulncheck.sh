#!/usr/bin/env bash
# Looks for known vulnerabilities in all modules of this repository: in the code that the
# programs and tests call, their own, that of their dependencies and the standard library,
# and in the binaries of the tools. Of hack/local-cluster/parts, which is Kubernetes itself, it
# lists vulnerable packages without failing: which of them are called would take 8 GB of memory
# to find out, and the remedy is Kubernetes' next version. If the Go team's database cannot be
# reached, the check is skipped and says so. `make vulncheck` runs this script.
# To repair: go get the version that the report says is fixed, or use a newer toolchain.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
set -a
# shellcheck source=hack/build.env
. hack/build.env
set +a

command -v curl >/dev/null || { echo "vulncheck: curl is not installed" >&2 && exit 1; }
if ! curl --silent --fail --max-time 20 --output /dev/null https://vuln.go.dev/index/db.json; then
  echo "vulncheck: skipped: https://vuln.go.dev cannot be reached"
  exit 0
fi
govulncheck=$(hack/tool.sh govulncheck checks.mod)
status=0
while IFS= read -r file; do
  module=$(dirname "${file}")
  echo "vulncheck: ${module}"
  case ${module} in
    hack/local-cluster/parts) "${govulncheck}" -C "${module}" -scan=package ./... || true ;;
    hack/tools) ;; # below
    *) "${govulncheck}" -C "${module}" -test ./... || status=1 ;;
  esac
done < <(git ls-files -- 'go.mod' '**/go.mod')
for file in go.mod checks.mod; do
  for tool in $(go -C hack/tools list -modfile="${file}" -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' tool); do
    echo "vulncheck: ${tool}"
    "${govulncheck}" -mode=binary "$(hack/tool.sh "${tool##*/}" "${file}")" || status=1
  done
done
exit "${status}"
