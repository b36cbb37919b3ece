#!/usr/bin/env bash
# Checks that relative links in Markdown files lead to a file and a heading, and that what
# documents name exists: tests, identifiers, flags, values of the chart, and messages. And that
# the name of each program in apps is hardly anywhere but in its directories.
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
    git grep --untracked -nwF -e "${name}" -- "${@:2}" | sed "s/^\([^:]*:[0-9]*\):.*/\1: ${name}: no such ${what}/"
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
  <(git grep --untracked -ohE '`[A-Za-z]+[a-z][A-Z][A-Za-z0-9]*`' -- "${about[@]}" | tr -d '`' | grep -v '^Test' | sort -u) \
  <(git grep --untracked -ohE '[A-Za-z]+[a-z][A-Z][A-Za-z0-9]*' -- ':!*.md' | sort -u))

# In the documents for operators, `-name` is a flag of the program that they are about, and so is
# what follows it in a command. docs/flags.md has those of all programs.
flags() {
  missing flag "${@:2}" < <(comm -23 \
    <({
      git grep --untracked -ohE '`-[a-z][a-z-]+' -- "${@:2}" | tr -d '`'
      git grep --untracked -ohE '(\./controller|run \.(/apps/[a-z/-]+)?) .*' -- "${@:2}" | grep -oE ' -[a-z][a-z-]+' | tr -d ' '
    } | sort -u) \
    <(grep -ohE -e '--[a-z-]+' docs/flags.md "$1" | sed 's/^-//' | sort -u))
}
operators=(README.md artifacts/monitoring/README.md docs/concepts.md docs/guarantees.md docs/operating.md docs/security.md docs/using.md)
flags docs/flags.md "${operators[@]}"
for app in apps/*/; do
  [[ -d ${app} ]] || continue # there is none
  flags "${app}flags.md" "${app}README.md"
  operators+=("${app}README.md")
done

# The table in the chart's README is made from its values. One that has others below it can be
# named, too.
values=$(sed -n 's/^| \([a-zA-Z0-9.]*\) | .*/\1/p' charts/k8s-controller/README.md)
missing value '*.md' < <(comm -23 \
  <({
    git grep --untracked -ohE "\`($(sed -n 's/\..*//p' <<<"${values}" | sort -u | paste -sd '|' -))(\.[A-Za-z0-9]+)+" -- '*.md' | tr -d '`'
    git grep --untracked -ohE -e '--set [^ `]+' -- '*.md' | cut -d ' ' -f 2 | tr ',' '\n' | sed 's/=.*//'
  } | sort -u) \
  <(awk -F . '{ key = $1; print key; for (i = 2; i <= NF; i++) print key = key "." $i }' <<<"${values}" | sort -u))

# messages prints file:line:part of each message of our programs that a document quotes: a symptom
# of docs/operating.md, or words that begin with a capital. Three dots stand for what varies.
messages() {
  {
    git grep --untracked -noE '^\| [^|]*`[^|]* \|' -- docs/operating.md | sed 's/| \(.*\) |$/\1/'
    git grep --untracked -n '`[A-Z][a-z]* [a-z]' -- "${operators[@]}"
  } | awk -F '`' '{
    split($1, at, ":")
    for (i = 2; i <= NF; i += 2) {
      if ($i !~ / / || $i ~ /^(kubectl|listen) /) continue
      if (at[1] != "docs/operating.md" && $i !~ /^[A-Z][a-z]+ [a-z ]+$/) continue
      gsub(/^because="|"$|\(?"?\.\.\."?\)?|NAME:/, "\n", $i)
      n = split($i, part, "\n")
      for (j = 1; j <= n; j++) { gsub(/^ +| +$/, "", part[j]); if (part[j] ~ / /) print at[1] ":" at[2] ":" part[j] }
    }
  }' | sort -u
}
while IFS=: read -r file line part; do
  if ! git grep --untracked -qF -e "${part}" -- '*.go' '*.yaml' '*.tpl' '*.json'; then
    echo "${file}:${line}: ${part}: no such message"
    status=1
  fi
done < <(messages)

# A program in apps is removed with the directories of its name, its row in the README and its line
# in CI. Nothing else needs it: its values in the chart do no harm.
for app in apps/*/; do
  [[ -d ${app} ]] || continue
  name=$(basename "${app}")
  if git grep --untracked -in -e "${name}" -- ":!*/${name}/*" ':!README.md' ':!.github' ':!CHANGELOG.md' \
    ':!charts/k8s-controller/values.yaml' ':!charts/k8s-controller/values.schema.json' ':!charts/k8s-controller/README.md'; then
    echo "${name} is named outside of its directories: move that into one of its name"
    status=1
  fi
  if git grep --untracked -n -e "]([./]*apps/${name}/" -- ":!*/${name}/*" ':!README.md'; then
    echo "only README.md links to ${name}"
    status=1
  fi
done

# Commands work on macOS, too, unless the line says that they are for Linux.
if git grep --untracked -nE '\b(date -d|nproc|sed -i|readlink -f|grep -P|sha256sum|timeout [0-9])\b' -- '*.md' | grep -v Linux; then
  echo "macOS has no such command, or not with this option"
  status=1
fi
exit "${status}"
