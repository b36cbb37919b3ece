#!/usr/bin/env bash
# Generates everything that follows from Go code. From the types in pkg/apis: deep
# copies, scheme registration, apply configurations, clientset, listers, informers, the
# CustomResourceDefinition and docs/api.md. From the flags of the programs: docs/flags.md.
# Run it after a change of the API or of a flag.
#
# The generators are pinned by hack/tools/go.mod. Those of k8s.io/code-generator are
# installed in GOBIN, or else in GOPATH/bin.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
set -a
# shellcheck source=hack/build.env
. hack/build.env # with the usual GOGC=100, each generator takes half as long again
set +a

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
crds=$(mktemp -d)
trap 'rm -rf "${crds}"' EXIT
go tool -modfile=hack/tools/go.mod controller-gen crd paths=./pkg/apis/... "output:crd:dir=${crds}"
mkdir -p artifacts/examples
# controller-gen's pattern of a quantity bounds neither digits nor exponent. An exponent such as
# 1e-999999999 takes a controller hours to parse, and 200,000 digits take it seconds each time
# that they are marshalled.
quantity='^(\+|-)?([0-9]{1,20}(\.[0-9]{0,12})?|\.[0-9]{1,12})([KMGTPE]i|[numkMGTPE]|[eE](\+|-)?[0-9]{1,2})?$'
sed "/pattern:.*KMGTPE/ s/pattern:.*/pattern: ${quantity//\\/\\\\}/" \
  "${crds}/controller.nicoleh.io_icecreams.yaml" >artifacts/examples/crd-icecream.yaml

# The example has its own API, without a clientset.
go tool -modfile=hack/tools/go.mod controller-gen object crd paths=./examples/database/... output:crd:dir=examples/database

go tool -modfile=hack/tools/go.mod crd-ref-docs --config hack/tools/api-reference/config.yaml \
  --templates-dir hack/tools/api-reference --renderer markdown --source-path pkg/apis \
  --output-path docs/api.md --log-level ERROR

{
  echo "# Flags

This is what \`-help\` prints. hack/update-codegen.sh writes it here."
  for program in . cmd/*/; do
    [[ -d ${program} ]] || continue # there is no cmd
    printf '\n```\n'
    go run -ldflags=-w "./${program}" -help
    echo '```'
  done
} >docs/flags.md
