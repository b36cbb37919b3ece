#!/usr/bin/env bash
# Checks that relative links in Markdown files lead to a file, and that the tests that
# these files name exist.
# To repair: edit the link or the name. The message has its file and line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
status=0

# links prints file:line:target of each relative link, without its heading.
links() {
  git grep --untracked -noE '\]\([A-Za-z0-9_./-]*[./][A-Za-z0-9_./-]*[)#]|(src|srcset)="[A-Za-z0-9_./-]+"' -- '*.md' | sed -E 's/:(\]\(|(src|srcset)=")/:/; s/[)#"]$//'
}
while IFS=: read -r file line target; do
  if [[ ! -e $(dirname "${file}")/${target} ]]; then
    echo "${file}:${line}: ${target}: no such file"
    status=1
  fi
done < <(links)

name='Test[A-Z][A-Za-z0-9_]*'
while IFS= read -r test; do
  git grep --untracked -nwF "${test}" -- '*.md' | sed "s/^\([^:]*:[0-9]*\):.*/\1: ${test}: no such test/"
  status=1
done < <(comm -23 \
  <(git grep --untracked -ohE "\`${name}\`|\[${name}\]" -- '*.md' | tr -d '`[]' | sort -u) \
  <(git grep --untracked -ohE "^func ${name}\(" -- '*_test.go' | sed 's/^func //; s/($//' | sort -u))
exit "${status}"
