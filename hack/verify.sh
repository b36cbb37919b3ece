#!/usr/bin/env bash
# Runs every check of this tree except its tests. A check changes no files. All checks
# run, even if one of them fails, and each one says how to repair what it finds.
#
# The first checks are whether generated files are up to date; the others are about
# files that people write. The last one only prints what has changed of the API that authors
# import. Arguments select checks: "hack/verify.sh links scripts" runs
# hack/verify-links.sh and hack/verify-scripts.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
set -a
# shellcheck source=hack/build.env
. hack/build.env # what the checks compile is compiled as the tests are
set +a

generated=(codegen modules)
written=(copies links scripts workflows monitoring lint charts)
printed=(api)

output=$(mktemp)
trap 'rm -f "${output}"' EXIT
failed=()

# check NAME runs hack/verify-NAME.sh and shows its output if it fails, or is there to print.
check() {
  local start=${SECONDS} result=ok
  if ! "hack/verify-$1.sh" >"${output}" 2>&1 </dev/null; then
    result=FAIL
    failed+=("$1")
  fi
  if [[ ${result} == FAIL || " ${printed[*]} " == *" $1 "* ]]; then
    cat "${output}"
  fi
  printf '%-4s  %-10s  %3ds\n' "${result}" "$1" "$((SECONDS - start))"
}

if (($# == 0)); then
  set -- "${generated[@]}" "${written[@]}" "${printed[@]}"
fi
for name in "$@"; do
  check "${name}"
done

if ((${#failed[@]} > 0)); then
  echo "verify: failed: ${failed[*]}"
  exit 1
fi
echo "verify: all checks passed"
