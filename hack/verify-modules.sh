#!/usr/bin/env bash
# Checks every go.mod: it is tidy, and all of them require the same version of Go and of
# Kubernetes' libraries. The toolchain that the root module pins must be that of the
# image in which it is built. hack/local-cluster/parts contains all of Kubernetes at a
# version of its own; the libraries there must have that version.
# To repair: run go mod tidy in the module, or go get the version of the other modules.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export GOFLAGS='' GOWORK=off
status=0

modules=()
while IFS= read -r file; do
  modules+=("${file}")
done < <(git ls-files --cached --others --exclude-standard -- 'go.mod' '**/go.mod')

for file in "${modules[@]}"; do
  if ! go mod -C "$(dirname "${file}")" tidy -diff; then
    echo "${file}: not tidy"
    status=1
  fi
done

# same WHAT checks that all lines of standard input, "value (file)", have the same value.
same() {
  local lines
  lines=$(sort -u)
  if (($(cut -d' ' -f1 <<<"${lines}" | sort -u | grep -c .) > 1)); then
    printf 'Several versions of %s:\n%s\n' "$1" "${lines}"
    status=1
  fi
}

# libraries PATTERN FILE... prints "version (file)" for each library that is published
# along with Kubernetes, from the lines of the go.mod files that match the pattern.
libraries() {
  awk -v lines="$1" '$0 ~ lines {
    for (i = 1; i < NF; i++)
      if ($i ~ /^k8s\.io\/[a-z-]+$/ && $(i + 1) ~ /^v0\.[1-9][0-9]*\.[0-9]+$/)
        print $(i + 1) " (" FILENAME ")"
  }' "${@:2}"
}

parts=hack/local-cluster/parts/go.mod
same Go < <(awk '$1 == "go" { print $2 " (" FILENAME ")" }' "${modules[@]}")
pins() {
  sed -n 's/^toolchain go\([0-9.]*\)$/\1 (go.mod)/p' go.mod
  sed -n 's/^ARG BUILD_IMAGE=.*golang:\([0-9.]*\)-.*@sha256:.*/\1 (Dockerfile)/p' Dockerfile
}
same "the toolchain" < <(pins)
if (($(pins | wc -l) != 2)); then
  echo "The toolchain must be pinned in go.mod and, with a digest, in the Dockerfile"
  status=1
fi
same "Kubernetes' libraries" < <(
  for file in "${modules[@]}"; do
    [[ ${file} == "${parts}" ]] || libraries . "${file}"
  done
)
if [[ -e ${parts} ]]; then
  same "Kubernetes' parts" < <(
    libraries "=>" "${parts}"
    awk '$1 == "k8s.io/kubernetes" { sub(/^v1/, "v0", $2); print $2 " (" FILENAME ")" }' "${parts}"
  )
fi
exit "${status}"
