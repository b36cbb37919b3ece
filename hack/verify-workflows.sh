#!/usr/bin/env bash
# Checks .github: actionlint understands the workflows, every action is pinned by the
# digest of a commit, and updates are proposed for every Go module.
# Repair: the file; the complaint says what.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
status=0

go tool -modfile=hack/tools/checks.mod actionlint || status=1

if grep -nE '^ *(- )?uses:' .github/workflows/*.yaml | grep -vE '@[0-9a-f]{40} # v[0-9.]+$'; then
  echo "An action is not pinned by the digest of a commit, with its version in a comment."
  status=1
fi

while IFS= read -r file; do
  module=/$(dirname "${file}")
  if ! grep -qxF "      - ${module%/.}" <(sed 's|^      - /$|      - |' .github/dependabot.yml) && [[ ${module} != /hack/local-cluster/parts ]]; then
    echo ".github/dependabot.yml: no updates of ${module}"
    status=1
  fi
done < <(git ls-files --cached --others --exclude-standard -- 'go.mod' '**/go.mod')
exit "${status}"
