#!/usr/bin/env bash
# Checks every go.mod: it is tidy, and no two of them need a module in different versions,
# because then everything that depends on it is compiled twice. All of them require the
# same version of Go, and the toolchain of the root module must be that of the image in
# which it is built. All parts of Kubernetes have one version. hack/tools/checks.mod is
# apart, and says why.
# To repair: do what each line says.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
set -a
# shellcheck source=hack/build.env
. hack/build.env
set +a
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
    echo "${file}: not tidy; run go mod -C $(dirname "${file}") tidy"
    status=1
  fi
done < <(git ls-files -- 'go.mod' '**/go.mod')

# needed prints MODULE VERSION FILE for each module that a go.mod requires, with the version
# that a replacement gives it, and nothing of modules that are replaced by a directory.
needed() {
  awk '
    function flush(m) { for (m in version) print m, version[m], file; delete version }
    FNR == 1 { flush(); file = FILENAME }
    { sub(/\/\/.*/, ""); sub(/^(require|replace) /, "") }
    $2 ~ /^v[0-9]/ { version[$1] = $2 }
    $2 == "=>" && $4 == "" { delete version[$1] }
    $2 == "=>" && $4 != "" && $1 in version { version[$1] = $4 }
    END { flush() }
  ' "${modules[@]}"
}

first='' # the module, and below its newest version
while read -r module version file; do
  if [[ ${module} != "${first}" ]]; then
    first=${module} newest=${version} newest_file=${file}
  elif [[ ${version} != "${newest}" ]]; then
    repair="get ${module}@${newest}"
    if grep -qF "${module} => " "${file}"; then
      repair="mod edit -replace=${module}=${module}@${newest}"
    fi
    echo "${newest_file} needs ${module} ${newest}, and ${file} ${version}: run go -C $(dirname "${file}") ${repair}"
    status=1
  fi
done < <(needed | sort -k1,1 -k2,2Vr)

same Go < <(sed -n 's/^go //p' "${modules[@]}")
same "the toolchain" < <(sed -n 's/^toolchain go//p' go.mod && sed -n 's/^ARG BUILD_IMAGE=.*golang:\([0-9.]*\)-.*@sha256:.*/\1/p' Dockerfile)
same "Kubernetes' parts" < <(awk '$1 == "k8s.io/kubernetes" { sub(/^v1/, "v0", $2); print $2 } $2 == "=>" && $3 ~ /^k8s\.io\// { print $4 }' hack/local-cluster/parts/go.mod)
exit "${status}"
