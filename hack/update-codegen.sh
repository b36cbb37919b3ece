#!/usr/bin/env bash
# Generates everything that follows from Go code. From the types in pkg/apis: deep
# copies, scheme registration, apply configurations, clientset, listers, informers, the
# CustomResourceDefinition and docs/api.md. From the flags of the programs: docs/flags.md.
# Run it after a change of the API or of a flag.
#
# They work on a copy of the tree, so that one that fails leaves nothing half-written here.
# The generators are pinned by hack/tools/go.mod. Those of k8s.io/code-generator are
# installed in GOBIN, or else in GOPATH/bin.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
set -a
# shellcheck source=hack/build.env
. hack/build.env # with the usual GOGC=100, each generator takes half as long again
set +a

temp=$(mktemp -d)
trap 'rm -rf "${temp}"' EXIT
tree=${PWD} copy=${temp}/copy
mkdir "${copy}"
tar -cf - --exclude=./.git --exclude=./vendor --exclude=./dist . | tar -xf - -C "${copy}"
cd "${copy}"

go mod -C hack/tools download k8s.io/code-generator
codegen=$(go list -C hack/tools -m -f '{{.Dir}}' k8s.io/code-generator)
# shellcheck source=/dev/null
source "${codegen}/kube_codegen.sh"

kube::codegen::gen_helpers --boilerplate hack/boilerplate.go.txt pkg/apis
kube::codegen::gen_register --boilerplate hack/boilerplate.go.txt pkg/apis
kube::codegen::gen_client \
  --with-watch \
  --with-applyconfig \
  --plural-exceptions Icecream:Icecreams \
  --output-dir pkg/generated \
  --output-pkg "$(go list -m)/pkg/generated" \
  --boilerplate hack/boilerplate.go.txt \
  pkg/apis

# One file per kind, named as people look for it.
"$(hack/tool.sh controller-gen)" crd paths=./pkg/apis/... "output:crd:dir=${temp}"
mkdir -p artifacts/examples
# controller-gen's pattern of a quantity bounds neither digits nor exponent. An exponent such as
# 1e-999999999 takes a controller hours to parse, and 200,000 digits take it seconds each time
# that they are marshalled.
quantity='^(\+|-)?([0-9]{1,20}(\.[0-9]{0,12})?|\.[0-9]{1,12})([KMGTPE]i|[numkMGTPE]|[eE](\+|-)?[0-9]{1,2})?$'
sed "/pattern:.*KMGTPE/ s/pattern:.*/pattern: ${quantity//\\/\\\\}/" \
  "${temp}/controller.nicoleh.io_icecreams.yaml" >artifacts/examples/crd-icecream.yaml

# The example has its own API, without a clientset.
"$(hack/tool.sh controller-gen)" object crd paths=./examples/database/... output:crd:dir=examples/database

"$(hack/tool.sh crd-ref-docs)" --config hack/tools/api-reference/config.yaml \
  --templates-dir hack/tools/api-reference --renderer markdown --source-path pkg/apis \
  --output-path docs/api.md --log-level ERROR

# All of them have succeeded.
generated=(pkg/generated artifacts/examples/crd-icecream.yaml docs/api.md)
generated+=(examples/database/db.example.com_databases.yaml)
while IFS= read -r file; do
  generated+=("${file}")
done < <(find . -name 'zz_generated.*.go')
cd "${tree}"
for path in "${generated[@]}"; do
  rm -rf "${path}"
  mkdir -p "$(dirname "${path}")"
  cp -R "${copy}/${path}" "${path}"
done

# The programs have to compile for this, and may not do so yet.
{
  echo "# Flags

This is what \`-help\` prints. hack/update-codegen.sh writes it here."
  for program in . cmd/*/; do
    [[ -d ${program} ]] || continue # there is no cmd
    printf '\n```\n'
    go run -ldflags=-w "./${program}" -help
    echo '```'
  done
} >"${temp}/flags.md"
mkdir -p docs
cp "${temp}/flags.md" docs/flags.md
