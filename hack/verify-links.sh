#!/usr/bin/env bash
# Checks that links in Markdown files to other files of this repository, and to
# headings in them, have a target, and that the tests that these files name exist.
# To repair: edit the link or the name. The message has its file and line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

temp=$(mktemp -d)
trap 'rm -rf "${temp}"' EXIT
go build -C hack/tools -o "${temp}/" ./verify-links
status=0
git ls-files -z --cached --others --exclude-standard -- '*.md' | xargs -0 "${temp}/verify-links" || status=1

name='Test[A-Z][A-Za-z0-9_]*'
git grep --untracked -ohE "^func ${name}\(" -- '*_test.go' | sed 's/^func //; s/($//' | sort -u >"${temp}/tests"
while IFS= read -r test; do
  git grep --untracked -nwF "${test}" -- '*.md' | sed "s/^\([^:]*:[0-9]*\):.*/\1: ${test}: no such test/"
  status=1
done < <(git grep --untracked -ohE "\`${name}\`|\[${name}\]" -- '*.md' | tr -d '`[]' | sort -u | comm -23 - "${temp}/tests")
exit "${status}"
