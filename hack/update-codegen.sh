#!/usr/bin/env bash
# Generates everything that follows from Go code. From the types in pkg/apis: deep
# copies, scheme registration, apply configurations, clientset, listers, informers, the
# CustomResourceDefinition and docs/api.md. From the flags of the programs: docs/flags.md.
# Run it after a change of the API or of a flag.
#
# The generators are pinned by hack/tools/go.mod.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
set -a
# shellcheck source=hack/build.env
. hack/build.env # with the usual GOGC=100, each generator takes half as long again
set +a

module=$(go list -m)
api=${module}/pkg/apis/samplecontroller/v1alpha1
generated=pkg/generated
header="--go-header-file hack/boilerplate.go.txt"
plurals="--plural-exceptions Icecream:Icecreams"

rm -rf "${generated}" pkg/apis/*/*/zz_generated.*.go

# Each line is a generator of k8s.io/code-generator and its flags.
go run -C hack/tools -ldflags=-w ./codegen "${PWD}" "${api}" <<END
deepcopy-gen ${header} --output-file zz_generated.deepcopy.go
register-gen ${header} --output-file zz_generated.register.go
applyconfiguration-gen ${header} --output-dir ${generated}/applyconfiguration --output-pkg ${module}/${generated}/applyconfiguration
client-gen ${header} ${plurals} --output-dir ${generated}/clientset --output-pkg ${module}/${generated}/clientset \
  --clientset-name versioned --apply-configuration-package ${module}/${generated}/applyconfiguration \
  --input-base ${module}/pkg/apis --input samplecontroller/v1alpha1
lister-gen ${header} ${plurals} --output-dir ${generated}/listers --output-pkg ${module}/${generated}/listers
informer-gen ${header} ${plurals} --output-dir ${generated}/informers --output-pkg ${module}/${generated}/informers \
  --versioned-clientset-package ${module}/${generated}/clientset/versioned --listers-package ${module}/${generated}/listers
END

# One file per kind, named as people look for it.
crds=$(mktemp -d)
trap 'rm -rf "${crds}"' EXIT
go tool -modfile=hack/tools/go.mod controller-gen crd paths=./pkg/apis/... "output:crd:dir=${crds}"
mkdir -p artifacts/examples
mv "${crds}/controller.nicoleh.io_icecreams.yaml" artifacts/examples/crd-icecream.yaml

go tool -modfile=hack/tools/go.mod crd-ref-docs --config hack/tools/api-reference/config.yaml \
  --templates-dir hack/tools/api-reference --renderer markdown --source-path pkg/apis \
  --output-path docs/api.md --log-level ERROR

go test -count=1 -vet=off -run '^TestFlagReference$' . ./cmd/reboot-agent -update
