#!/usr/bin/env bash
# Checks that relative links in Markdown files lead to a file and a heading, and that the
# tests that any file names, and the identifiers that these files name, exist.
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

# headings prints file#heading of each heading, as GitHub writes it in an address.
headings() {
  git grep --untracked -E '^#+ ' -- '*.md' | awk '{
    file = $0; sub(/:.*/, "", file)
    sub(/^[^:]*:#+ /, ""); gsub(/\]\([^)]*\)/, "")
    heading = tolower($0); gsub(/[^a-z0-9 _-]/, "", heading); gsub(/ /, "-", heading)
    print file "#" heading
  }'
}

# anchors prints file:line:file#heading of each link to a heading.
anchors() {
  git grep --untracked -noE '\]\([A-Za-z0-9_./-]*#[^)]+\)' -- '*.md' | sed -E 's/:\]\(/:/; s/\)$//' | while IFS=: read -r file line target; do
    path=${target%%#*}
    case ${path} in
    '') echo "${file}:${line}:${file}#${target#*#}" ;;
    *.md)
      path=$(cd "$(dirname "${file}")" && cd "$(dirname "${path}")" && pwd)/$(basename "${path}")
      echo "${file}:${line}:${path#"${PWD}/"}#${target#*#}"
      ;;
    esac
  done
}
while IFS=: read -r file line target; do
  echo "${file}:${line}: ${target}: no such heading"
  status=1
done < <(awk 'NR == FNR { known[$0]; next } { t = $0; sub(/^[^:]*:[0-9]*:/, "", t); if (!(t in known)) print }' <(headings) <(anchors))

# missing WHAT FILE... reads names, and prints where those of the files have them.
missing() {
  local what=$1
  while IFS= read -r name; do
    git grep --untracked -nwF "${name}" -- "${@:2}" | sed "s/^\([^:]*:[0-9]*\):.*/\1: ${name}: no such ${what}/"
    status=1
  done
}

# In code, a name that begins with Test and is not in quotes is that of a test.
name='Test[A-Z][A-Za-z0-9_]*'
missing test '*.md' '*.go' '*.yaml' '*.sh' Makefile < <(comm -23 \
  <({
    git grep --untracked -ohE "\`${name}\`|\[${name}\]" -- '*.md'
    git grep --untracked -hE "(//|#) .*${name}" -- '*.go' '*.yaml' '*.sh' Makefile | grep -oE "(^|[ (])${name}"
  } | tr -d '`[]( ' | sort -u) \
  <(git grep --untracked -ohE "^func ${name}\(" -- '*_test.go' '*.md' | sed 's/^func //; s/($//' | sort -u))

# In the documents about our code, a word with a capital in the middle is an identifier.
about=(CONTRIBUTING.md docs/concepts.md docs/guarantees.md)
missing identifier "${about[@]}" < <(comm -23 \
  <(git grep --untracked -ohE '`[a-z]+[A-Z][A-Za-z0-9]*`' -- "${about[@]}" | tr -d '`' | sort -u) \
  <(git grep --untracked -ohE '[a-z]+[A-Z][A-Za-z0-9]*' -- ':!*.md' | sort -u))
exit "${status}"
