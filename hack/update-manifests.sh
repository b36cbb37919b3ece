#!/usr/bin/env bash
# Writes what follows from the chart: its README.md, artifacts/install.yaml,
# artifacts/rbac-*.yaml and other parts of it. Before that it copies the
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
mkdir -p "${chart}/files"
cp "${tree}"/artifacts/examples/crd-*.yaml "${chart}/files/"

"$(hack/tool.sh helm-docs)" --chart-search-root "${chart}" --sort-values-order file --log-level warning

# render TEMPLATE...: what these templates, or all, give with default values, or
# with those in ${values}. Policies hold in every namespace: an overlay of a
# kustomization moves the service account, but nothing in a text. Where it comes from
# is left out, as are empty lines at the end of a document.
render() {
  "${helm}" template k8s-controller "${chart}" --namespace k8s-controller-system \
    --set "policies.everyNamespace=true${values:+,${values}}" "${@/#/--show-only=templates/}" |
    awk '/^# Source: / { next } /^$/ { empty = empty "\n"; next }
      /^---$/ { empty = "" } { printf "%s%s\n", empty, $0; empty = "" }'
}

namespace='apiVersion: v1
kind: Namespace
metadata:
  name: k8s-controller-system
  labels:
    app.kubernetes.io/name: k8s-controller
    pod-security.kubernetes.io/enforce: restricted
    pod-security.kubernetes.io/enforce-version: latest
    pod-security.kubernetes.io/audit: restricted
    pod-security.kubernetes.io/audit-version: latest
    pod-security.kubernetes.io/warn: restricted
    pod-security.kubernetes.io/warn-version: latest'

{
  echo "# The Icecream controller with everything that it needs. This is charts/k8s-controller
# with its default values: change that, and run hack/update-manifests.sh.
#
# The image is not published. Build it (make image), push it to your registry, and
# name it here or in a kustomization.
#
# kubectl delete -f of this file also deletes the CustomResourceDefinition, and with it
# all Icecreams and their Pods.
${namespace}"
  # What restricts an account comes before what it can do.
  render writes-shared.yaml writes-icecream.yaml policy-icecream.yaml
  values=policies.create=false render
} >"${temp}/install.yaml"

{
  echo "# The service account of the controllers, and what they all need, whichever of them
# run: the Lease for their election, and reviews of the tokens of metrics' readers.
# rbac-<name>.yaml adds what one controller needs. This is rendered from
# charts/k8s-controller: change that, and run hack/update-manifests.sh.
#
# kubectl delete -f of this file deletes the namespace, too, and all that is in it.
${namespace}"
  render writes-shared.yaml
  render serviceaccount.yaml rbac-leader-election.yaml flowschema.yaml rbac-metrics-auth.yaml
} >"${temp}/service-account.yaml"

{
  echo "# What the Icecream controller is allowed to do, in addition to
# artifacts/service-account.yaml. This is rendered from charts/k8s-controller: change
# that, and run hack/update-manifests.sh. For a single namespace (-namespace), bind the
# rules of the ClusterRole there with a Role, as the chart does for its value
# \"namespace\"."
  render writes-icecream.yaml policy-icecream.yaml
  render rbac-icecream.yaml
} >"${temp}/rbac-icecream.yaml"

# optional NAME: the policy and the roles of a controller that is off by default, and the
# namespace that some of them are in.
optional() {
  local namespace
  values=controllers.$1.enabled=true render "rbac-$1.yaml" >"${temp}/roles"
  namespace=$(sed -n 's/^  namespace: //p' "${temp}/roles" | sort -u | grep -vx -e default -e k8s-controller-system || true)
  echo "# What the controller $1 is allowed to do, in addition to
# artifacts/service-account.yaml. This is rendered from charts/k8s-controller: change
# that, and run hack/update-manifests.sh."
  if [[ -n ${namespace} ]]; then
    echo "#
# kubectl delete -f of this file deletes the namespace, too, and all that is in it.
apiVersion: v1
kind: Namespace
metadata:
  name: ${namespace}"
  fi
  values=controllers.$1.enabled=true render "writes-$1.yaml"
  cat "${temp}/roles"
}

for policy in "${chart}"/templates/writes-*.yaml; do
  name=$(basename "${policy#*/writes-}" .yaml)
  if [[ ${name} != shared && ${name} != icecream ]]; then
    optional "${name}" >"${temp}/rbac-${name}.yaml"
  fi
done

# What else there is of a controller.
for part in hack/update-manifests-*.sh; do
  # shellcheck source=/dev/null
  if [[ -e ${part} ]]; then . "${part}"; fi
done

mv "${temp}"/*.yaml "${tree}/artifacts/"
mkdir -p "${tree}/charts/k8s-controller/files"
cp "${chart}"/files/crd-*.yaml "${tree}/charts/k8s-controller/files/"
cp "${chart}/README.md" "${tree}/charts/k8s-controller/README.md"
