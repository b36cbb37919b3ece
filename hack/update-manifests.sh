#!/usr/bin/env bash
# Writes what follows from the chart: its README.md, artifacts/install.yaml and parts of it,
# and apps/*/install.yaml. Before that it copies the
# CustomResourceDefinitions into the chart. Run it after a change of the chart, and after
# hack/update-codegen.sh.
#
# An argument is another copy of this tree, to be updated in place of this one.
# The tools are pinned by hack/tools/go.mod.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
set -a
# shellcheck source=hack/build.env
. hack/build.env
set +a
tree=${1:-.}

temp=$(mktemp -d)
trap 'rm -rf "${temp}"' EXIT
export HELM_CACHE_HOME=${temp} HELM_CONFIG_HOME=${temp} HELM_DATA_HOME=${temp}
unset KUBECONFIG HELM_NAMESPACE

helm=$(hack/tool.sh helm)

# A copy, so that a tool that fails leaves nothing half-written in the tree.
mkdir "${temp}/charts"
cp -R "${tree}/charts/k8s-controller" "${temp}/charts/"
chart=${temp}/charts/k8s-controller

# Files of a chart have to be in its directory.
mkdir -p "${chart}/files/icecream"
cp "${tree}"/artifacts/examples/crd-*.yaml "${chart}/files/icecream/"

"$(hack/tool.sh helm-docs)" --chart-search-root "${chart}" --sort-values-order file --log-level warning

# render RELEASE VALUES [TEMPLATE...]: what these templates, or all, give with these values.
# What restricts an account comes before what it can do. Where it comes from is left out, as
# are empty lines at the end of a document.
render() {
  local release=$1 values=$2
  shift 2
  "${helm}" template "${release}" "${chart}" --namespace "${release}-system" --set "${values}" "${@/#/--show-only=templates/}" |
    awk '/^# Source: / { next } /^$/ { empty = empty "\n"; next }
      /^---$/ { empty = ""; end() } { document = document empty $0 "\n"; empty = "" }
      /^kind: ValidatingAdmissionPolicy/ { restricts = 1 }
      END { end(); printf "%s%s", first, rest }
      function end() {
        if (restricts) { first = first document } else { rest = rest document }
        document = ""; restricts = 0
      }'
}

namespace() {
  echo "apiVersion: v1
kind: Namespace
metadata:
  name: $1-system
  labels:
    app.kubernetes.io/name: $1
    pod-security.kubernetes.io/enforce: restricted
    pod-security.kubernetes.io/enforce-version: latest
    pod-security.kubernetes.io/audit: restricted
    pod-security.kubernetes.io/audit-version: latest
    pod-security.kubernetes.io/warn: restricted
    pod-security.kubernetes.io/warn-version: latest"
}

# Policies hold in every namespace: an overlay of a kustomization moves the service account,
# but nothing in a text.
icecream=policies.everyNamespace=true
{
  echo "# The Icecream controller with everything that it needs. This is charts/k8s-controller
# with its default values: change that, and run hack/update-manifests.sh.
#
# The image is not published. Build it (make image), push it to your registry, and
# name it here or in a kustomization.
#
# kubectl delete -f of this file also deletes the CustomResourceDefinition, and with it
# all Icecreams and their Pods."
  namespace k8s-controller
  render k8s-controller "${icecream}"
} >"${temp}/install.yaml"

{
  echo "# The service account of the Icecream controller, the Lease for its election, and
# reviews of the tokens of metrics' readers. rbac-icecream.yaml adds what it does. This is
# rendered from charts/k8s-controller: change that, and run hack/update-manifests.sh.
#
# kubectl delete -f of this file deletes the namespace, too, and all that is in it."
  namespace k8s-controller
  render k8s-controller "${icecream}" writes.yaml serviceaccount.yaml rbac-leader-election.yaml flowschema.yaml rbac-metrics-auth.yaml
} >"${temp}/service-account.yaml"

{
  echo "# What the Icecream controller is allowed to do, in addition to
# artifacts/service-account.yaml. This is rendered from charts/k8s-controller: change
# that, and run hack/update-manifests.sh. For a single namespace (-namespace), bind the
# rules of the ClusterRole there with a Role, as the chart does for its value
# \"namespace\"."
  render k8s-controller "${icecream}" icecream/writes.yaml icecream/policy.yaml rbac.yaml
} >"${temp}/rbac-icecream.yaml"

# Each of the programs in apps/ has one manifest.
for app in "${tree}"/apps/*/; do
  [[ -d ${app} ]] || continue # there is none
  program=$(basename "${app}")
  mkdir -p "${temp}/apps/${program}"
  {
    echo "# ${program} with everything that it needs. This is charts/k8s-controller with program=${program}:
# change that, and run hack/update-manifests.sh. For other names, namespaces or flags, use the chart.
#
# The image is not published. Build it (make image PROGRAM=apps/${program}), push it to your
# registry, and name it here."
    namespace "${program}"
    render "${program}" "program=${program}"
  } >"${temp}/apps/${program}/install.yaml"
done

mv "${temp}"/*.yaml "${tree}/artifacts/"
if [[ -d ${temp}/apps ]]; then cp -R "${temp}/apps" "${tree}/"; fi
mkdir -p "${tree}/charts/k8s-controller/files/icecream"
cp "${chart}"/files/icecream/crd-*.yaml "${tree}/charts/k8s-controller/files/icecream/"
cp "${chart}/README.md" "${tree}/charts/k8s-controller/README.md"
