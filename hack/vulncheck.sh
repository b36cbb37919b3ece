#!/usr/bin/env bash
# Looks for known vulnerabilities in what the programs of a module call: its own code,
# its dependencies and the standard library, by the Go team's database. The module is
# this one, or that in the directory which is the first argument.
#
# It is skipped, with a line that says so, where the database cannot be reached;
# $GOVULNDB names another one. `make vulncheck` runs it.
# Repair: go get the version that the report calls fixed, or a newer toolchain.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=${PWD}
export GOFLAGS='' GOWORK=off GOVULNDB=${GOVULNDB:-https://vuln.go.dev}

output=$(mktemp)
trap 'rm -f "${output}"' EXIT
govulncheck=$(go tool -n -modfile=hack/tools/checks.mod govulncheck)

result=0
"${govulncheck}" -C "${1:-${root}}" -db "${GOVULNDB}" ./... >"${output}" 2>&1 || result=$?
if ((result == 0)); then
  echo "vulncheck: nothing is known, by ${GOVULNDB}"
elif ((result != 3)) && [[ ${GOVULNDB} == http* ]] && grep -qE 'unrecognized vulndb format|fetching vulnerabilities' "${output}"; then
  # The first of these is what it says when it gets no answer.
  echo "vulncheck: skipped: ${GOVULNDB} cannot be reached: $(head -n 1 "${output}")"
else
  cat "${output}"
  exit "${result}"
fi
