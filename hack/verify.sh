#!/usr/bin/env bash
# The gate: everything that can be said about this tree without running its
# tests. Nothing is changed; every check runs, also after one has failed, and
# names the command that repairs what it complains about.
#
# First whatever is generated must be what generating it again would give, then
# come the checks of what people write. Names given as arguments select checks,
# e.g. "hack/verify.sh links manifests" runs hack/verify-links.sh and
# hack/verify-manifests.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

generated=(codegen modules)
written=(links manifests paths scripts workflows monitoring lint charts)

output=$(mktemp)
trap 'rm -f "${output}"' EXIT
failed=()

# check NAME runs hack/verify-NAME.sh and shows its output if it fails.
check() {
  local start=${SECONDS} result=ok
  if ! "hack/verify-$1.sh" >"${output}" 2>&1 </dev/null; then
    result=FAIL
    failed+=("$1")
    cat "${output}"
  fi
  printf '%-4s  %-10s  %3ds\n' "${result}" "$1" "$((SECONDS - start))"
}

if (($# == 0)); then
  set -- "${generated[@]}" "${written[@]}"
fi
for name in "$@"; do
  check "${name}"
done

if ((${#failed[@]} > 0)); then
  echo "verify: failed: ${failed[*]}"
  exit 1
fi
echo "verify: all is well"
