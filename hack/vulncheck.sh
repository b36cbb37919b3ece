#!/usr/bin/env bash
# Looks for known vulnerabilities in the code that the programs call: their own, that of
# their dependencies, and the standard library. If the Go team's database cannot be
# reached, the check is skipped and says so. `make vulncheck` runs this script.
# To repair: go get the version that the report says is fixed, or use a newer toolchain.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
set -a
# shellcheck source=hack/build.env
. hack/build.env
set +a

if ! curl --silent --fail --max-time 20 --output /dev/null https://vuln.go.dev/index/db.json; then
  echo "vulncheck: skipped: https://vuln.go.dev cannot be reached"
  exit 0
fi
"$(hack/tool.sh govulncheck checks.mod)" ./...
