#!/usr/bin/env bash
# Generates what follows from the types in apis: deep copies, scheme registration, clientset, listers, informers, and
# the CustomResourceDefinition. The generators' versions are those in go.mod.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

go mod download k8s.io/code-generator
# shellcheck source=/dev/null
source "$(go list -m -f '{{.Dir}}' k8s.io/code-generator)/kube_codegen.sh"
rm -rf generated && mkdir -p generated/{clientset,listers,informers} # also what a former kind left
kube::codegen::gen_helpers --boilerplate /dev/null apis
kube::codegen::gen_register --boilerplate /dev/null apis
kube::codegen::gen_client --boilerplate /dev/null --with-watch --plural-exceptions Database:Databases \
  --output-dir generated --output-pkg "$(go list .)/generated" apis

# The schema's date-times are not all those that Go can decode: "z" for "Z", or the year 9999 elsewhere.
export time='^[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$'
go tool controller-gen crd paths=./apis/... output:stdout |
  awk '{ print } sub(/format: date-time$/, "pattern: " ENVIRON["time"])' >artifacts/crd-database.yaml
