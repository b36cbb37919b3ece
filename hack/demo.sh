#!/usr/bin/env bash
# Shows the Icecream controller at work on a cluster of its own, which
# hack/local-cluster starts on this machine, and stays up until Ctrl-C.
#
#   hack/demo.sh          the tour, then stay up to be played with
#   ONCE=1 hack/demo.sh   the tour only; fails if any step of it does not happen
#
# It needs Go and nothing else; it compiles no kubectl if there is a suitable one. Whatever it
# starts ends with it. README.md has a part of what it prints, written by hack/demo-picture.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

deadline=60s # of each step

if [[ -t 1 ]]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi
title() { printf '\n%s== %s%s\n' "${bold}" "$1" "${plain}"; }
say() { printf '%s\n' "$@"; }
prompt() { printf '\n%s$ %s%s\n' "${bold}" "$*" "${plain}"; }

# show prints a command as one would type it, and runs it. Waiting for it, unlike running
# it in the foreground, lets a trap run at once.
show() {
  prompt "$@"
  "$@" &
  wait $!
}

# --- The controller and its cluster ------------------------------------------

title "The controller, and a Kubernetes control plane on this machine"
say "etcd, API server, controller manager, scheduler and three simulated nodes." \
  "The first start on a machine compiles all of it, which takes about nine minutes on two cores."
set -a
# shellcheck source=hack/build.env
. hack/build.env
set +a
prompt "go build -o controller ."
go build -ldflags=-w -o controller .

dir=$(mktemp -d "${TMPDIR:-/tmp}/icecream-demo.XXXXXX")
log=${dir}/logs/controller.log

# cleanup ends everything. If something went wrong, it shows the end of each log, and keeps them.
cleanup() {
  local status=$?
  trap '' INT TERM HUP PIPE
  say '' "Stopping everything."
  jobs -p | xargs kill 2>/dev/null || true
  wait
  if ((status == 0 || status > 128)); then
    rm -rf "${dir}" "${dir}.out"
  else
    tail -n 10 "${dir}"/logs/*.log 2>/dev/null | cut -c -300 >&2 || true
    say "The demo failed. The logs are in ${dir}/logs." >&2
  fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

prompt "go -C hack/local-cluster run . up --dir ${dir}"
go -C hack/local-cluster build -ldflags=-w -o local-cluster .
(cd hack/local-cluster && exec ./local-cluster up --dir "${dir}") >"${dir}.out" &
cluster=$!
until grep -qs ^KUBECONFIG= "${dir}.out"; do
  kill -0 "${cluster}" 2>/dev/null || exit 1 # it has ended, and said why
  sleep 0.2
done
export KUBECONFIG=${dir}/kubeconfig KUBECACHEDIR=${dir}/kubectl PATH=${dir}/bin:${PATH}

show kubectl get nodes

# --- The tour ----------------------------------------------------------------

ice=icecream/example-icecream

uid() { kubectl get deployment example-icecream -o jsonpath='{.metadata.uid}'; }

# recorded waits until the controller has recorded so many events with that reason. An
# event that repeats is counted. Events follow the status, and there is nothing else to
# wait for that follows them.
recorded() {
  local until=$((SECONDS + ${deadline%s}))
  while (($(kubectl get events -o jsonpath='{range .items[?(@.reason=="'"$1"'")]}{.count}{"\n"}{end}' | awk '{ sum += $1 } END { print sum + 0 }') < $2)); do
    ((SECONDS < until)) || { say "There were not $2 events with reason $1 within ${deadline}." >&2 && exit 1; }
    sleep 0.1
  done
}

title "An Icecream, and no controller yet"
show kubectl apply -f artifacts/examples/crd-icecream.yaml
# While a new CustomResourceDefinition has no conditions, kubectl wait --for=condition fails.
show kubectl wait --for=jsonpath='{.status.conditions[?(@.type=="Established")].status}'=True --timeout="${deadline}" \
  crd/icecreams.controller.nicoleh.io
show kubectl apply -f artifacts/examples/example-icecream.yaml
show kubectl get icecreams

title "The controller creates its Deployment"
prompt "./controller -kubeconfig=${KUBECONFIG} -bind-address=127.0.0.1:0 &"
./controller -kubeconfig="${KUBECONFIG}" -bind-address=127.0.0.1:0 >"${log}" 2>&1 &
controller=$!

show kubectl wait --for=condition=Ready --timeout="${deadline}" "${ice}"
show kubectl get icecreams -o wide
show kubectl get deployments
show kubectl get pods -o wide

recorded Synced 1
say '' "Events say what happened:"
show kubectl events --for="${ice}"

title "Scale it, as anything that has a scale subresource"
show kubectl scale "${ice}" --replicas=3
show kubectl wait --for=condition=Ready --timeout="${deadline}" "${ice}"
show kubectl get icecreams -o wide
show kubectl get pods -o wide

title "Delete its Deployment by hand"
before=$(uid)
say "Its UID is ${before}."
show kubectl delete --timeout="${deadline}" deployment/example-icecream
show kubectl wait --for=create --timeout="${deadline}" deployment/example-icecream
show kubectl wait --for=jsonpath='{.status.availableReplicas}'=3 --timeout="${deadline}" deployment/example-icecream
show kubectl wait --for=condition=Ready --timeout="${deadline}" "${ice}"
after=$(uid)
say '' "The UID was ${before}," "and now it is ${after}:"
[[ ${after} != "${before}" ]]
say "The controller has created another Deployment of the same name."
show kubectl get icecreams -o wide
recorded Synced 3
show kubectl events --for="${ice}"

title "A variable, a probe and a volume"
template=artifacts/examples/example-template.yaml
show cat "${template}"
show kubectl apply -f "${template}"
show kubectl wait --for=condition=Ready --timeout="${deadline}" icecream/example-template
show kubectl get deployment example-template \
  -o custom-columns='GREETING:..env[*].value,PROBE:..readinessProbe.httpGet.path,VOLUME:..volumeMounts[*].mountPath'
show kubectl delete -f "${template}"

title "An image that does not exist, and a correction"
sed -n '/^```yaml$/,/^```$/{/^```/!p;}' README.md >"${dir}/pistachio.yaml"
correction='{"spec":{"image":"registry.example/pistachio:1"}}'
prompt "cat pistachio.yaml"
cat "${dir}/pistachio.yaml"
prompt "kubectl apply -f pistachio.yaml"
kubectl apply -f "${dir}/pistachio.yaml"
recorded ImagePullBackOff 1
show kubectl get icecreams
show kubectl events --for=icecream/pistachio
prompt "kubectl patch icecream/pistachio --type=merge -p '${correction}'"
kubectl patch icecream/pistachio --type=merge -p "${correction}"
show kubectl wait --for=condition=Ready --timeout="${deadline}" icecream/pistachio
show kubectl get icecreams

if [[ -n ${ONCE:-} ]]; then
  title "All of it happened"
  exit 0
fi

trap 'exit 0' INT
title "Now you"
say "The cluster and the controller run until Ctrl-C. In another terminal:" "" \
  "  export KUBECONFIG=${KUBECONFIG}" \
  "  export PATH=${dir}/bin:\$PATH   # the cluster's kubectl" "" \
  "  kubectl get icecreams -o wide --watch" \
  "  kubectl patch ${ice} --type=merge -p '{\"spec\":{\"image\":\"registry.example/crash:1\"}}'" \
  "  kubectl describe ${ice}" \
  "  kubectl delete ${ice}" "" \
  "The controller's log is ${log}."
wait "${controller}"
