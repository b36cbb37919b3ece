#!/usr/bin/env bash
# Generates everything that follows from Go code. From the types in pkg/apis, all kinds in
# all versions: deep copies, scheme registration, clientset, listers, informers, the
# CustomResourceDefinitions and docs/api.md. From the flags of the programs: docs/flags.md, and
# flags.md of each program in apps.
# Run it after a change of the API or of a flag. docs/change-the-api.md shows how.
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

# generate TYPES OUTPUT CRDS: what follows from the types in TYPES. The packages of the clientset are
# written to OUTPUT, and one file for each kind to CRDS.
generate() {
  local types=$1 output=$2 crds=$3 drafts file singular
  kube::codegen::gen_helpers --boilerplate hack/boilerplate.go.txt "${types}"
  kube::codegen::gen_register --boilerplate hack/boilerplate.go.txt "${types}"
  kube::codegen::gen_client \
    --with-watch \
    --output-dir "${output}" \
    --output-pkg "$(go list -m)/${output}" \
    --boilerplate hack/boilerplate.go.txt \
    "${types}"

  drafts=$(mktemp -d "${temp}/crds.XXXXXX")
  "$(hack/tool.sh controller-gen)" crd "paths=./${types}/..." "output:crd:dir=${drafts}"
  mkdir -p "${crds}"
  rm -f "${crds}"/crd-*.yaml
  for file in "${drafts}"/*.yaml; do
    singular=$(sed -n 's/^    singular: //p' "${file}")
    # Each of these admits what Go cannot decode, or cannot afford to. Of a quantity, controller-gen's
    # pattern bounds neither digits nor exponent: 1e-999999999 takes a controller hours to parse, and
    # 200,000 digits take it seconds each time that they are marshalled. A date-time can have a small t
    # or z, which Go does not parse, and be in the year 9999 only in its own time zone.
    # An IntOrString, which has no pattern, can have more than 32 bits.
    sed -e "/pattern:.*KMGTPE/ s/pattern:.*/pattern: ${quantity//\\/\\\\}/" \
      -e "s/^\( *\)format: date-time$/&\n\1pattern: ${time//\\/\\\\}/" "${file}" |
      awk '/x-kubernetes-int-or-string: true/ && last !~ /pattern:/ {
          indent = $0; sub(/x-.*/, "", indent)
          print indent "maximum: 2147483647\n" indent "minimum: -2147483648"
        }
        { print; last = $0 }' >"${crds}/crd-${singular}.yaml"
  done
}

quantity='^(\+|-)?([0-9]{1,20}(\.[0-9]{0,12})?|\.[0-9]{1,12})([KMGTPE]i|[numkMGTPE]|[eE](\+|-)?[0-9]{1,2})?$'
time='^[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$'

generate pkg/apis pkg/generated artifacts/examples
# The example has the script that its author gets. hack/tools is its go.mod here.
sed "s|^module .*|module $(go list -m)/examples/database|" hack/tools/go.mod >examples/database/go.mod
cp hack/tools/go.sum examples/database
examples/database/hack/update-codegen.sh

"$(hack/tool.sh crd-ref-docs)" --config hack/tools/api-reference/config.yaml \
  --templates-dir hack/tools/api-reference --renderer markdown --source-path pkg/apis \
  --output-path docs/api.md --log-level ERROR

# All of them have succeeded.
generated=(pkg/generated docs/api.md artifacts/examples/crd-*.yaml)
generated+=(examples/database/generated examples/database/artifacts/crd-*.yaml)
while IFS= read -r file; do
  generated+=("${file}")
done < <(find . -name 'zz_generated.*.go')
cd "${tree}"
rm -f artifacts/examples/crd-*.yaml
rm -f examples/database/artifacts/crd-*.yaml
for path in "${generated[@]}"; do
  rm -rf "${path}"
  mkdir -p "$(dirname "${path}")"
  cp -R "${copy}/${path}" "${path}"
done

# tables KNOWN makes a table of each group of flags that -help prints, without the rows of the page KNOWN.
tables() {
  awk -v known="$1" '
    function finish(value, row) {
      if (match(meaning, / \(default .*\)$/)) {
        value = substr(meaning, RSTART + 10, RLENGTH - 11)
        gsub(/^"|"$/, "", value)
        value = "`" value "`"
        meaning = substr(meaning, 1, RSTART - 1)
      }
      gsub(/\|/, "\\|", meaning)
      row = "| `" flag "` | " value " | " meaning " |"
      if (flag != "" && !(row in shared)) { print head row; head = "" }
      flag = ""
    }
    BEGIN { while ((getline row <known) > 0) shared[row] }
    !NF && ++paragraph == 2 && known { print "\nIt has the [flags of all programs](../../" known ") and these, which are its own or have another default:" }
    !NF { next }
    paragraph == 0 { print "\n## " $2 "\n"; next }
    paragraph == 1 { gsub(/--[a-z-]+|[A-Z]+_[A-Z_]+/, "`&`"); print; next }
    /^[^ ]/ { finish(); sub(/:$/, ""); head = "\n### " $0 "\n\n| Flag | Default | Meaning |\n|---|---|---|\n"; next }
    /^(      |  -., )--/ { finish(); sub(/^ +(-., )?/, ""); flag = $0; sub(/   .*/, "", flag); meaning = $0; sub(/.*   +/, "", meaning); next }
    { sub(/^ +/, " "); meaning = meaning $0 }
    END { finish() }'
}

# flags DIRECTORY MAIN... writes the page about the flags of these programs. Those that all programs have are in docs.
flags() {
  {
    printf '# Flags\n\nhack/update-codegen.sh writes this page from what -help prints.\n'
    for main in "${@:2}"; do
      go run -ldflags=-w "./$(dirname "${main}")" -help | tables "$([[ ${main} != "$1/main.go" ]] || echo docs/flags.md)"
    done
  } >"${temp}/flags.md"
  mkdir -p "$1"
  cp "${temp}/flags.md" "$1"
}

# The programs have to compile for this, and may not do so yet.
flags docs main.go
shopt -s nullglob
for app in apps/*; do
  flags "${app}" "${app}"/main.go "${app}"/*/main.go
done
