#!/usr/bin/env bash
# Checks the chart and what is rendered from it: files that hack/update-manifests.sh
# writes are up to date; what each of the chart's ci/*-values.yaml renders passes
# helm lint, kubeconform with schemas of the local cluster's own API server, and
# kube-score; the Pods are restricted ones (Pod Security Standards), bad values are
# refused, and the rendered flags are flags of the controller (go test).
# Repair: hack/update-manifests.sh, or the chart; the complaint says what.
#
# The schemas are cached. To make them, the local cluster has to be built, which
# takes minutes where it has not been done.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
chart=charts/icecream-controller
status=0

temp=$(mktemp -d)
trap 'rm -rf "${temp}"' EXIT
export HELM_CACHE_HOME=${temp} HELM_CONFIG_HOME=${temp} HELM_DATA_HOME=${temp}
unset KUBECONFIG HELM_NAMESPACE

# pinned NAME [MODFILE]: the path of a tool, after building it.
pinned() { go tool -n -modfile="hack/tools/${2:-go.mod}" "$1"; }
helm=$(pinned helm)
kubeconform=$(pinned kubeconform)
kube_score=$(pinned kube-score checks.mod)

# What is written by hack/update-manifests.sh, written once more.
mkdir "${temp}/tree" "${temp}/generated"
cp -R charts artifacts "${temp}/tree"
cp -R charts artifacts "${temp}/generated"
hack/update-manifests.sh "${temp}/generated"
if ! (cd "${temp}" && diff -ruN tree generated); then
  echo "Rendered files are not up to date: run hack/update-manifests.sh"
  status=1
fi

# These checks of kube-score are not for this chart:
ignored=(
  # A released tag is always the same image, and a Pod should start also when
  # the registry is away.
  container-image-pull-policy
  # Nothing is written but the log, which the kubelet rotates.
  container-ephemeral-storage-request-and-limit
  # Topology spread constraints keep replicas apart, and only those of one
  # version, so that an update finds room.
  deployment-has-host-podantiaffinity
)
score=(--kubernetes-version v1.36 --exit-one-on-warning --output-format ci
  --enable-optional-test container-seccomp-profile --enable-optional-test container-ports-check)

for values in "${chart}"/ci/*-values.yaml; do
  name=$(basename "${values}" -values.yaml)
  rendered=${temp}/${name}.yaml
  if ! "${helm}" lint --strict --quiet "${chart}" --values "${values}" >"${temp}/lint" 2>&1; then
    cat "${temp}/lint"
    status=1
  fi
  if ! "${helm}" template icecream-controller "${chart}" --namespace icecream-system --values "${values}" >"${rendered}"; then
    status=1
    continue
  fi
  read -ra more < <(sed -n 's/^# kube-score misses, as it should: //p' "${values}" && echo)
  if ! "${kube_score}" score "${score[@]}" "${ignored[@]/#/--ignore-test=}" "${more[@]/#/--ignore-test=}" "${rendered}" >"${temp}/score"; then
    echo "${values}:"
    grep -E '^\[(CRITICAL|WARNING)\]' "${temp}/score" || cat "${temp}/score"
    status=1
  fi
done

# The kinds of the Prometheus Operator and of kustomize are not the cluster's.
schemas=$(go run -C hack/tools ./charts/cluster-schemas -root ../..)
"${kubeconform}" -strict -skip ServiceMonitor,PrometheusRule,Kustomization \
  -schema-location "${schemas}/{{.ResourceKind}}{{.KindSuffix}}.json" \
  "${temp}"/*.yaml artifacts/*.yaml artifacts/examples || status=1

go -C hack/tools test -count=1 ./charts || status=1
exit "${status}"
