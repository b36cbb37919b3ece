#!/usr/bin/env bash
# Builds the program with one small mistake after the other, and says after how many
# histories the simulation finds each. Nothing of the working tree changes.
#
#   hack/mutants.sh SEEDS [PATCH...]
#
# Without patches, it tries all of pkg/kittest/simulation/testdata/mutants. It fails if one
# of them is not found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=hack/build.env
set -a && . hack/build.env && set +a
seeds=$1
shift
[[ $# -gt 0 ]] || set -- pkg/kittest/simulation/testdata/mutants/*.patch

work=$(mktemp -d)
trap 'rm -rf "${work}"' EXIT
survivors=0
for patch in "$@"; do
  mutant=$(basename "${patch}" .patch)
  file=$(sed -n 's|^+++ b/||p' "${patch}")
  patch --quiet --output="${work}/mutant.go" "${file}" "${patch}"
  printf '{"Replace": {"%s": "%s"}}' "${PWD}/${file}" "${work}/mutant.go" >"${work}/overlay.json"
  if ! go test -c -vet=off -overlay "${work}/overlay.json" -o "${work}/test" . >"${work}/log" 2>&1; then
    echo "${mutant}: does not compile: $(tail -1 "${work}/log")"
    survivors=$((survivors + 1))
    continue
  fi
  "${work}/test" -test.run '^TestSimulation$' -sim.world=icecream -sim.seeds="${seeds}" -sim.failures=1 -sim.plain >"${work}/log" 2>&1 || true
  found=$(grep -a -m1 -o 'failure after [0-9]* histories\|^panic: .*\|^fatal error: .*' "${work}/log" || true)
  if [[ -z ${found} ]]; then
    survivors=$((survivors + 1))
    found="not found in ${seeds} histories"
  fi
  echo "${mutant}: ${found}$(grep -a -m1 '^ *seed [0-9]*:' "${work}/log" | cut -c1-160)"
done
exit $((survivors > 0))
