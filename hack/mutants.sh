#!/usr/bin/env bash
# Builds the program with one small mistake after the other, and says after how many
# histories the simulation finds each. Nothing of the working tree changes.
#
#   hack/mutants.sh SEEDS [PATCH...]
#
# Without patches, it tries all of testdata/mutants. A patch can begin with two lines: "World:"
# names the controller that has the mistake, which is the first one otherwise, and "Survives:"
# says why the simulation does not find it. The script fails if another one is not found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=hack/build.env
set -a && . hack/build.env && set +a
seeds=$1
shift
[[ $# -gt 0 ]] || set -- testdata/mutants/*.patch

work=$(mktemp -d)
trap 'rm -rf "${work}"' EXIT
survivors=0
for patch in "$@"; do
  mutant=$(basename "${patch}" .patch)
  file=$(sed -n 's|^+++ b/||p' "${patch}")
  world=$(sed -n 's|^World: |./pkg/|p' "${patch}")
  reason=$(sed -n 's/^Survives: //p' "${patch}")
  patch --quiet --output="${work}/mutant.go" "${file}" "${patch}"
  printf '{"Replace": {"%s": "%s"}}' "${PWD}/${file}" "${work}/mutant.go" >"${work}/overlay.json"
  if ! go test -c -vet=off -overlay "${work}/overlay.json" -o "${work}/test" "${world:-.}" >"${work}/log" 2>&1; then
    echo "${mutant}: does not compile: $(tail -1 "${work}/log")"
    survivors=$((survivors + 1))
    continue
  fi
  "${work}/test" -test.run '^TestSimulation$' -sim.seeds="${seeds}" -sim.failures=1 -sim.plain >"${work}/log" 2>&1 || true
  found=$(grep -a -m1 -o 'failure after [0-9]* histories\|^panic: .*\|^fatal error: .*' "${work}/log" || true)
  if [[ -z ${found} ]]; then
    [[ -n ${reason} ]] || survivors=$((survivors + 1))
    found="not found in ${seeds} histories${reason:+, as expected: ${reason}}"
  fi
  echo "${mutant}: ${found}$(grep -a -m1 '^ *seed [0-9]*:' "${work}/log" | cut -c1-160)"
done
exit $((survivors > 0))
