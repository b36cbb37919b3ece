#!/usr/bin/env bash
# Shows the Icecream controller at work on a control plane that hack/local-cluster starts on this
# machine. README.md shows a part of the output, which hack/demo-picture.sh draws.
#
#   hack/demo.sh          the demo; then the cluster and the controller run until Ctrl-C
#   ONCE=1 hack/demo.sh   the demo only; fails if any step of it does
#
# It needs only Go, and ends everything that it has started.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
set -a
# shellcheck source=hack/build.env
. hack/build.env
GOFLAGS+=' -ldflags=-w'
set +a

dir=$(mktemp -d "${TMPDIR:-/tmp}/icecream-demo.XXXXXX")

# cleanup ends everything. After a failure it shows the end of each log, and keeps the logs.
cleanup() {
  local status=$?
  trap '' INT TERM HUP PIPE
  jobs -p | xargs kill 2>/dev/null || true
  wait
  if ((status == 0 || status > 128)); then
    rm -rf "${dir}" "${dir}.out"
  else
    tail -n 10 "${dir}"/logs/*.log 2>/dev/null | cut -c -300 >&2 || true
    echo "The demo failed. The logs are in ${dir}/logs." >&2
  fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

if [[ -t 1 ]]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi
title() { printf '\n%s== %s%s\n' "${bold}" "$1" "${plain}"; }

# run prints a command, and then runs what it has printed: each can be typed.
run() {
  [[ $1 != "kubectl get"* ]] || echo
  printf '%s$ %s%s\n' "${bold}" "$1" "${plain}"
  eval "$1"
}

# await repeats a command until it succeeds, for a minute.
await() {
  local end=$((SECONDS + 60))
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || { echo "This has not succeeded within a minute: $*" >&2; exit 1; }
    sleep 0.2
  done
}

# becomes waits until an Icecream has that reason.
becomes() {
  kubectl wait --for=jsonpath='{.status.conditions[?(@.type=="Ready")].reason}'="$2" --timeout=60s "icecream/$1" >/dev/null
}

# is_policy_active reports whether the policy denies an image yet: that takes about a second.
is_policy_active() {
  [[ $(kubectl set image deployment/vanilla icecream=vanilla:latest --dry-run=server 2>&1) == *no-latest* ]]
}

title "A Kubernetes control plane with three simulated nodes, and the controller"
echo "The first start on a machine compiles them: about nine minutes on two cores."
go -C hack/local-cluster build -o local-cluster .
(cd hack/local-cluster && exec ./local-cluster up --dir "${dir}") >"${dir}.out" &
cluster=$!
until grep -qs ^KUBECONFIG= "${dir}.out"; do
  kill -0 "${cluster}" 2>/dev/null || exit 1 # it has ended, and said why
  sleep 0.2
done
export KUBECACHEDIR=${dir}/kubectl
run "export KUBECONFIG=${dir}/kubeconfig PATH=${dir}/bin:\$PATH"
run "kubectl apply -f artifacts/examples/crd-icecream.yaml"
run "go build -o controller ."
run "./controller -bind-address=127.0.0.1:0 2>${dir}/logs/controller.log &"
controller=$!

title "Four Deployments at 0/1, and why"
await kubectl get icecreams
run "kubectl apply -f artifacts/examples/demo/four-problems.yaml"
becomes vanilla ImagePullBackOff
await is_policy_active
run "kubectl patch icecream vanilla --type=merge -p '{\"spec\":{\"image\":\"registry.example/vanilla:latest\"}}'"
becomes chocolate CrashLoopBackOff
becomes mint Unschedulable
becomes pistachio ImagePullBackOff
becomes vanilla DeploymentRefused
run "kubectl get deployments"
run "kubectl get icecreams"
run "kubectl get icecream vanilla -o jsonpath='{.status.conditions[?(@.type==\"Ready\")].message}{\"\n\"}'"

title "Correct one, delete its Deployment, and scale it"
run "kubectl patch icecream vanilla --type=merge -p '{\"spec\":{\"image\":\"registry.example/vanilla:1\"}}'"
run "kubectl wait --for=condition=Ready --timeout=60s icecream/vanilla"
run "kubectl delete deployment vanilla"
await kubectl get deployment vanilla
run "kubectl get deployment vanilla"
run "kubectl scale icecream vanilla --replicas=3"
run "kubectl wait --for=condition=Ready --timeout=60s icecream/vanilla"
run "kubectl get icecreams"
[[ -z ${ONCE:-} ]] || exit 0

trap 'exit 0' INT
title "Now you"
echo "The cluster and the controller run until Ctrl-C. In another terminal, type the first command above, and"
echo "  kubectl patch icecream mint --type=merge -p '{\"spec\":{\"resources\":null}}'"
echo "  kubectl get icecreams -o wide --watch"
wait "${controller}"
