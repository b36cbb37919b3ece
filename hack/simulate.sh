#!/usr/bin/env bash
# Runs new seeds of the simulation on all cores for some time, and says what was run, what
# failed, and how much of the controllers it reached.
#
#   hack/simulate.sh DURATION [PACKAGE...]
#
# Each package has that time; without packages, those of all controllers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=hack/build.env
set -a && . hack/build.env && set +a

duration=$1
shift
if [[ $# -eq 0 ]]; then
  shopt -s nullglob
  set -- ./simulation_test.go ./apps/*/simulation_test.go
  set -- "${@%/*}"
fi
work=$(mktemp -d)
trap 'rm -rf "${work}"' EXIT
packages=$(go list ./... | grep -v -e /examples/ -e /hack -e /kittest -e /generated/ -e /apis/ | paste -sd,)
mkdir "${work}/coverage"
first=$(date +%s)000000
status=0
for package in "$@"; do
  go test -c -cover -coverpkg="${packages}" -o "${work}/test" "${package}"
  # Global randomness is seeded for each history, so there is one history at a time in a process.
  runs=()
  for core in $(seq "$(getconf _NPROCESSORS_ONLN)"); do
    GOMAXPROCS=1 "${work}/test" -test.run '^TestSimulation$' -test.v -test.timeout 0 -test.gocoverdir "${work}/coverage" \
      -sim.for="${duration}" -sim.first=$((first + core * 100000)) -sim.failures=20 >"${work}/log.${core}" 2>&1 &
    runs+=($!)
  done
  for run in "${runs[@]}"; do wait "${run}" || status=1; done
  echo "${package}"
  cat "${work}"/log.*
done
echo "Statements reached, by package:"
go tool covdata percent -i "${work}/coverage"
go tool covdata textfmt -i "${work}/coverage" -o "${work}/profile"
echo "Functions of the controllers that were not reached:"
go tool cover -func "${work}/profile" | awk '$NF == "0.0%"' | grep -v /kit/ || true
exit "${status}"
