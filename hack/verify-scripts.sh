#!/usr/bin/env bash
# Checks the shell scripts: they have no syntax errors, are executable, stop at the first
# error, and compile with the flags of hack/build.env if they do. If shellcheck is installed, it
# checks them, too. Authors copy the examples out of here, so these know no hack/build.env.
# To repair: edit the script.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
status=0

scripts=()
while IFS= read -r file; do # macOS has no mapfile
  scripts+=("${file}")
done < <(git ls-files -- '*.sh' .ci/run)
for script in "${scripts[@]}"; do
  bash -n "${script}" || status=1
  if [[ ! -x ${script} ]] || ! grep -q '^set -euo pipefail$' "${script}"; then
    echo "${script}: must be executable and contain \"set -euo pipefail\""
    status=1
  fi
  [[ ${script} != examples/* ]] || continue
  if grep -qE '^[^#]*\bgo (-C|build|list|mod|run|test|tool) ' "${script}" && ! grep -q 'hack/build\.env' "${script}"; then
    echo "${script}: must source hack/build.env, because it runs the go command"
    status=1
  fi
done
if command -v shellcheck >/dev/null; then
  shellcheck --severity=warning "${scripts[@]}" || status=1
fi
exit "${status}"
