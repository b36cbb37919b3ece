#!/usr/bin/env bash
# Checks the shell scripts: they have no syntax errors, are executable, stop at the first
# error, and begin with a comment that says what they do. If shellcheck is installed,
# it checks them, too.
# To repair: edit the script.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

status=0
# complain MESSAGE... prints a message and fails the check.
complain() {
  echo "$*"
  status=1
}

scripts=()
while IFS= read -r file; do
  [[ -e ${file} ]] && scripts+=("${file}")
done < <(git ls-files --cached --others --exclude-standard -- '*.sh' .ci/run)

for script in "${scripts[@]}"; do
  bash -n "${script}" || status=1
  [[ -x ${script} ]] || complain "${script}: not executable: chmod +x"
  [[ $(head -n 1 "${script}") == '#!/usr/bin/env bash' ]] || complain "${script}: does not begin with #!/usr/bin/env bash"
  [[ $(sed -n 2p "${script}") == '# '* ]] || complain "${script}: line 2 is not a comment that says what the script does"
  grep -q '^set -euo pipefail$' "${script}" || complain "${script}: no line \"set -euo pipefail\""
done
if command -v shellcheck >/dev/null; then
  shellcheck --severity=warning "${scripts[@]}" || status=1
fi
exit "${status}"
