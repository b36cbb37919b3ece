#!/usr/bin/env bash
# Checks every go.mod: it is tidy, and all of them require the same version of Go and of
# Kubernetes' libraries. The toolchain of the root module must be that of the image in
# which it is built. hack/local-cluster/parts contains Kubernetes at a version of its own.
# To repair: run go mod tidy in the module, or go get the version of the other modules.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export GOFLAGS='' GOWORK=off
status=0

# same WHAT checks that all lines of standard input are the same.
same() {
  local versions
  versions=$(sort -u)
  if (($(wc -l <<<"${versions}") != 1)); then
    echo "Not one version of $1:" ${versions}
    status=1
  fi
}

modules=()
while IFS= read -r file; do
  modules+=("${file}")
  if ! go mod -C "$(dirname "${file}")" tidy -diff; then
    echo "${file}: not tidy"
    status=1
  fi
done < <(git ls-files -- 'go.mod' '**/go.mod')

same Go < <(sed -n 's/^go //p' "${modules[@]}")
same "the toolchain" < <(sed -n 's/^toolchain go//p' go.mod && sed -n 's/^ARG BUILD_IMAGE=.*golang:\([0-9.]*\)-.*@sha256:.*/\1/p' Dockerfile)
same "Kubernetes' libraries" < <(git grep --untracked -hE '^[[:space:]]k8s\.io/(api|apimachinery|client-go|component-base) v' -- '*go.mod' ':!hack/local-cluster/parts' | awk '{ print $2 }')
same "Kubernetes' parts" < <(awk '$1 == "k8s.io/kubernetes" { sub(/^v1/, "v0", $2); print $2 } $3 == "=>" && $4 ~ /^k8s\.io\// { print $5 }' hack/local-cluster/parts/go.mod)
exit "${status}"
