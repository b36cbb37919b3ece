#!/usr/bin/env bash
# Checks that no file contains a path of a particular machine: the directory of this
# checkout, this user's home directory and caches, or any other home directory.
# To repair: use a relative path, a variable or a temporary directory.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A path with a single element, such as /src, would match too much.
patterns=(-e '/home/[a-z][a-z0-9._-]*/' -e '/Users/[A-Za-z][A-Za-z0-9._-]*/')
for dir in "${PWD}" "${HOME:-}" "$(go env GOMODCACHE)" "$(go env GOCACHE)"; do
  if [[ ${dir} == /*/* ]]; then
    patterns+=(-e "$(sed 's/[].[*^$+?(){}|\\]/\\&/g' <<<"${dir}")")
  fi
done
if git grep --untracked -nIE "${patterns[@]}" -- ':!hack/verify-paths.sh'; then
  echo "These files contain paths of a particular machine."
  exit 1
fi
