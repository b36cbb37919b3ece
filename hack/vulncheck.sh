#!/usr/bin/env bash
# Looks for known vulnerabilities in the code that the programs of a module call: their
# own, that of their dependencies, and the standard library. It uses the Go team's
# database, or the one that $GOVULNDB names. The module is this one, or the one in the
# directory that is given as the first argument.
#
# If the database cannot be reached, the check is skipped and says so. `make vulncheck`
# runs this script.
# To repair: go get the version that the report says is fixed, or use a newer toolchain.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=${PWD}
export GOFLAGS='' GOWORK=off GOVULNDB=${GOVULNDB:-https://vuln.go.dev}

output=$(mktemp)
trap 'rm -f "${output}"' EXIT
govulncheck=$(go tool -n -modfile=hack/tools/checks.mod govulncheck)

result=0
"${govulncheck}" -C "${1:-${root}}" -db "${GOVULNDB}" ./... >"${output}" 2>&1 || result=$?
# An exit code of 0 is not enough: govulncheck scans in a goroutine, and when that panics,
# main may return first. So it has to say that it found nothing.
if ((result == 0)) && grep -qE 'No vulnerabilities found|affected by 0 vulnerabilities' "${output}"; then
  echo "vulncheck: no known vulnerabilities in ${GOVULNDB}"
elif ((result != 3)) && [[ ${GOVULNDB} == http* ]] && grep -qE 'unrecognized vulndb format|fetching vulnerabilities' "${output}"; then
  # govulncheck reports an unrecognized format if the database does not answer at all.
  echo "vulncheck: skipped: ${GOVULNDB} cannot be reached: $(head -n 1 "${output}")"
else
  cat "${output}"
  exit "$((result == 0 ? 1 : result))"
fi
