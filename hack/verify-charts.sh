#!/usr/bin/env bash
# Checks the chart and the manifests that are rendered from it. The files that
# hack/update-manifests.sh writes must be up to date. For each of the chart's
# value files in ci, the chart must pass helm lint, and the rendered manifests must pass
# kube-score. Go tests check that every value has an effect, what the chart refuses, and that the
# programs know the rendered flags. (hack/tools/charts/install applies all of it to a real API
# server.)
# To repair: run hack/update-manifests.sh or edit the chart, as the message says.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
set -a
# shellcheck source=hack/build.env
. hack/build.env
set +a
chart=charts/k8s-controller
status=0

temp=$(mktemp -d)
trap 'rm -rf "${temp}"' EXIT
export HELM_CACHE_HOME=${temp} HELM_CONFIG_HOME=${temp} HELM_DATA_HOME=${temp}
unset KUBECONFIG HELM_NAMESPACE

helm=$(hack/tool.sh helm)
kube_score=$(hack/tool.sh kube-score checks.mod)

# Compare the tree with a copy that hack/update-manifests.sh has updated.
mkdir "${temp}/tree" "${temp}/generated"
for copy in tree generated; do
  cp -R charts artifacts "${temp}/${copy}"
  for app in apps/*/install.yaml; do
    [[ -e ${app} ]] || continue # no program is left there
    mkdir -p "${temp}/${copy}/${app%/*}"
    cp "${app}" "${temp}/${copy}/${app}"
  done
done
hack/update-manifests.sh "${temp}/generated"
if ! (cd "${temp}" && diff -ruN tree generated); then
  echo "Rendered files are not up to date: run hack/update-manifests.sh"
  status=1
fi

# Checks of kube-score that do not apply to this chart:
ignored=(
  # The tag of a release never changes, and a Pod should be able to start while the
  # registry is unavailable.
  container-image-pull-policy
  # The image has a user, and OpenShift's namespaces have users of their own.
  container-security-context-user-group-id
  # The containers write nothing but their log, which the kubelet rotates.
  container-ephemeral-storage-request-and-limit
  # Topology spread constraints keep replicas of the same version apart. Anti-affinity
  # would also keep old and new replicas apart, so that an update might find no node.
  deployment-has-host-podantiaffinity
)
score=(--kubernetes-version v1.37 --exit-one-on-warning --output-format ci
  --enable-optional-test container-seccomp-profile --enable-optional-test container-ports-check)

for values in "${chart}"/ci/*-values.yaml "${chart}"/ci/*/*-values.yaml; do
  [[ -e ${values} ]] || continue
  rendered=${temp}/rendered.yaml
  if ! "${helm}" lint --strict --quiet "${chart}" --values "${values}" >"${temp}/lint" 2>&1; then
    cat "${temp}/lint"
    status=1
  fi
  if ! "${helm}" template k8s-controller "${chart}" --namespace k8s-controller-system --values "${values}" >"${rendered}"; then
    status=1
    continue
  fi
  read -ra more < <(sed -n 's/^ *# kube-score misses, as it should: //p' "${values}" && echo)
  if ! "${kube_score}" score "${score[@]}" "${ignored[@]/#/--ignore-test=}" "${more[@]/#/--ignore-test=}" "${rendered}" >"${temp}/score"; then
    echo "${values}:"
    grep -E '^\[(CRITICAL|WARNING)\]' "${temp}/score" || cat "${temp}/score"
    status=1
  fi
done

go -C hack/tools test -count=1 -timeout 30m ./charts || status=1
exit "${status}"
