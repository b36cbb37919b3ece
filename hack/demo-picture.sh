#!/usr/bin/env bash
# Draws docs/demo.svg from what the demo prints, and writes its first lines into README.md.
#
#   ONCE=1 hack/demo.sh | hack/demo-picture.sh            draw and write
#   ONCE=1 hack/demo.sh | hack/demo-picture.sh --verify   fail if they say something else
#
# To verify, ages and the random ends of names do not count.
# To repair: run make picture.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

temp=$(mktemp -d)
trap 'rm -rf "${temp}"' EXIT
tee "${temp}/run"

# The last part of the tour, from where it asks for the Icecreams, in lines that fit.
sed -n '/^== An image that does not exist/,/^== All of it/{/^== /!p;}' "${temp}/run" |
  sed -n '/^\$ kubectl get/,$p' >"${temp}/part"
sed '/^$/,$d' "${temp}/part" >"${temp}/first"
if [[ ! -s ${temp}/first ]]; then
  echo "hack/demo-picture.sh: the demo printed no such part" >&2
  exit 1
fi
sed -e :a -e '/^\n*$/{$d;N;ba' -e '}' "${temp}/part" | fold -s -w 116 | sed 's/ *$//' >"${temp}/lines"

{
  height=$(($(wc -l <"${temp}/lines") * 17 + 32))
  cat <<END
<svg xmlns="http://www.w3.org/2000/svg" width="880" height="${height}" viewBox="0 0 880 ${height}" role="img" aria-label="Output of make demo">
<!-- hack/demo-picture.sh draws it. -->
<style>
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; white-space: pre; fill: #1f2328 }
rect { fill: #ffffff; stroke: #d1d9e0 }
.prompt { font-weight: bold }
.header { fill: #59636e }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc }
rect { fill: #0d1117; stroke: #3d444d }
.header { fill: #9198a1 }
}
</style>
<rect x="0.5" y="0.5" width="879" height="$((height - 1))" rx="6"/>
END
  awk '{
    class = /^\$ / ? "prompt" : /^(NAME|LAST SEEN) / ? "header" : "plain"
    gsub(/&/, "\\&amp;"); gsub(/</, "\\&lt;")
    if ($0 != "") printf "<text x=\"16\" y=\"%d\" class=\"%s\" xml:space=\"preserve\">%s</text>\n", NR * 17 + 11, class, $0
  }' "${temp}/lines"
  echo "</svg>"
} >"${temp}/demo.svg"

awk -v first="${temp}/first" '
  /^```$/ { skip = 0 }
  !skip
  /^```console$/ { skip = 1; while ((getline line < first) > 0) print line }
' README.md >"${temp}/README.md"

# words prints the words of a file, one a line, without what differs between two runs.
words() {
  sed -E 's/<[^>]*>//g' "$1" | tr -s '[:space:]' '\n' |
    sed -E -e 's/^([0-9]+[smh])+$/AGE/' -e 's/-[0-9a-f]{8,10}-[0-9a-z]{5}/-POD/'
}

if [[ ${1-} == --verify ]]; then
  diff <(words docs/demo.svg) <(words "${temp}/demo.svg") && diff <(words README.md) <(words "${temp}/README.md")
else
  cp "${temp}/demo.svg" docs/demo.svg
  cp "${temp}/README.md" README.md
fi
