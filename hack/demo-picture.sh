#!/usr/bin/env bash
# Draws docs/demo.svg from what the demo prints.
#
#   ONCE=1 hack/demo.sh | hack/demo-picture.sh            draw it
#   ONCE=1 hack/demo.sh | hack/demo-picture.sh --verify   fail if it shows anything else, but for ages
#
# To repair: run make picture.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

run=$(cat)
printf '%s\n' "${run}"
lines=$(sed -n '/^\$ kubectl get deployments/,/^== /{/^== /!p;}' <<<"${run}" | fold -s -w 104 | sed 's/ *$//')
if [[ ${lines} != *DeploymentRefused* ]] || (($(wc -l <<<"${run}") > 60)); then
  echo "hack/demo-picture.sh: the demo must show DeploymentRefused, and print at most 60 lines" >&2
  exit 1
fi

draw() {
  local height=$(($(wc -l <<<"${lines}") * 19 + 29))
  cat <<SVG
<svg xmlns="http://www.w3.org/2000/svg" width="880" height="${height}" viewBox="0 0 880 ${height}" role="img" aria-label="Output of make demo">
<!-- hack/demo-picture.sh draws it. -->
<style>
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; white-space: pre; fill: #1f2328 }
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
SVG
  awk '$0 != "" {
    class = /^\$ / ? "prompt" : /^NAME / ? "header" : "plain"
    gsub(/&/, "\\&amp;"); gsub(/</, "\\&lt;")
    printf "<text x=\"16\" y=\"%d\" class=\"%s\" xml:space=\"preserve\">%s</text>\n", NR * 19 + 9, class, $0
  }' <<<"${lines}"
  echo "</svg>"
}

ageless() { sed -E 's/ [0-9hms]+(<.text>)$/ AGE\1/'; }

if [[ ${1-} == --verify ]]; then
  diff <(ageless <docs/demo.svg) <(draw | ageless)
else
  draw >docs/demo.svg
fi
