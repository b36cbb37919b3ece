#!/usr/bin/env bash
# Checks that no file names a place on somebody's machine: this checkout, this
# user's home and caches, or anybody's home directory.
# Repair: a relative path, a variable or a temporary directory.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A directory like /src is too common a word to look for.
patterns=(-e '/home/[a-z][a-z0-9._-]*/' -e '/Users/[A-Za-z][A-Za-z0-9._-]*/')
for dir in "${PWD}" "${HOME:-}" "$(go env GOMODCACHE)" "$(go env GOCACHE)"; do
  if [[ ${dir} == /*/* ]]; then
    patterns+=(-e "$(sed 's/[].[*^$+?(){}|\\]/\\&/g' <<<"${dir}")")
  fi
done
if git grep --untracked -nIE "${patterns[@]}" -- ':!hack/verify-paths.sh'; then
  echo "Files name places on a machine."
  exit 1
fi
