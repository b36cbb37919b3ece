#!/usr/bin/env bash
# Shows the Icecream controller at work on a cluster of its own, which
# hack/local-cluster starts on this machine, and stays up until Ctrl-C.
#
#   hack/demo.sh          the tour, then stay up to be played with
#   ONCE=1 hack/demo.sh   the tour only; fails if any step of it does not happen
#
# It needs Go and nothing else. Whatever it starts ends with it, however it ends.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

once=${ONCE:-}
deadline=60s # of each step

dir=$(mktemp -d "${TMPDIR:-/tmp}/icecream-demo.XXXXXX")
never=${dir}/never # a pipe that nobody writes to: reading it is waiting
mkfifo "${never}"
export GOTMPDIR=${GOTMPDIR:-${dir}} # a go command that is interrupted leaves files
finished= # set once the whole tour has been seen

# --- What is printed ---------------------------------------------------------

if [[ -t 1 ]]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi

title() { printf '\n%s== %s%s\n' "${bold}" "$1" "${plain}"; }
say() { printf '%s\n' "$@"; }
prompt() { printf '\n%s$ %s%s\n' "${bold}" "$*" "${plain}"; }

# show prints a command as one would type it, and runs it.
show() {
  prompt "$@"
  run "$@" || fail "this command did not succeed: $*"
}

# fail shows the end of everything that was logged, and says what went wrong.
fail() {
  local log
  exec >&2
  for log in "${dir}"/cluster/logs/*.log; do excerpt "${log}" 5; done
  excerpt "${dir}/controller.log" 30
  printf '\n%sThe demo failed: %s%s\n' "${bold}" "$*" "${plain}"
  exit 1
}

excerpt() {
  [[ -s $1 ]] || return 0
  printf '\n--- the end of %s\n' "$1"
  tail -n "$2" "$1" | cut -c -300
}

# --- Processes ---------------------------------------------------------------

# begin starts a command as a job, which has a process group of its own: Ctrl-C
# reaches this script alone, which then ends its jobs in order. Its ID is in $!.
begin() {
  set -m
  "$@" </dev/null &
  set +m
}

# run runs a command to its end, or until a signal to this script.
run() {
  begin "$@"
  wait $!
}

# is_running leaves the parent's ID in $parent. A zombie has ended.
is_running() {
  local stat=
  if [[ -d /proc/self ]]; then
    # One line: "ID (name) state parent ...", of which the name may hold anything.
    read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
    stat=${stat##*) }
    parent=${stat#* }
    parent=${parent%% *}
  else
    read -r stat parent < <(ps -o stat=,ppid= -p "$1") || return 1
  fi
  [[ ${stat} != [ZX]* ]]
}

# a_moment waits, without a process that could be left behind.
a_moment() {
  local seconds=1
  if ((BASH_VERSINFO[0] >= 4)); then seconds=0.1; fi
  read -r -t "${seconds}" _ <>"${never}" || true
}

# stop ends a job, and returns when it is gone.
stop() {
  local _
  kill -INT -- "-$1" 2>/dev/null || true
  for _ in {1..150}; do
    is_running "$1" || return 0
    a_moment
  done
  kill -KILL -- "-$1" 2>/dev/null || true
}

# mind runs beside this script and does what the script cannot do itself: notice
# that whoever started it is gone, or that the controller has ended while it
# waits for something else, and clean up after it if it is killed.
mind() {
  local pids='' told=''
  trap - EXIT
  trap '' INT TERM HUP USR1
  while is_running $$; do
    if [[ ${parent} != "${PPID}" ]]; then kill -TERM $$; fi
    if [[ -z ${pids} && -f ${dir}/pids ]]; then read -r pids <"${dir}/pids"; fi
    if [[ -n ${pids} && -z ${told} ]] && ! is_running "${pids%% *}"; then
      kill -USR1 $$
      told=yes
    fi
    a_moment
  done
  for pid in ${pids}; do stop "${pid}"; done
  rm -rf "${dir}"
}

# cleanup ends the jobs, the latest first and the minder last. What was logged is
# kept if something went wrong.
cleanup() {
  local status=$? pid jobs=''
  set +e
  trap '' INT TERM HUP PIPE USR1
  for pid in $(jobs -rp); do
    if [[ ${pid} != "${minder}" ]]; then jobs="${pid} ${jobs}"; fi
  done
  if [[ -n ${jobs} ]]; then say '' "Stopping everything."; fi
  for pid in ${jobs}; do stop "${pid}"; done
  kill -KILL "${minder}" 2>/dev/null
  wait 2>/dev/null
  if ((status == 0 || status > 128)); then
    rm -rf "${dir}"
  else
    rm -rf "${dir}/cluster/etcd"
    say "All that was logged is in ${dir}."
  fi
}

minder=
trap cleanup EXIT
trap '[[ -z ${finished} ]] || exit 0; exit 130' INT # Ctrl-C is how a demo ends that stays up
trap 'exit 143' TERM
trap 'exit 129' HUP
trap 'fail "the controller has ended"' USR1
begin mind
minder=$!

# --- The controller and its cluster ------------------------------------------

title "The controller"
show go build -o controller .

title "A Kubernetes control plane on this machine"
say "etcd, API server, controller manager, scheduler and three simulated nodes." \
  "The first start on a machine compiles them, which takes some minutes."

prompt go run -C hack/local-cluster . up --dir "${dir}/cluster"
begin go run -C hack/local-cluster . up --dir "${dir}/cluster" >"${dir}/cluster.out"
cluster=$!
until grep -q '^KUBECONFIG=' "${dir}/cluster.out"; do
  is_running "${cluster}" || fail "the cluster did not start"
  a_moment
done
KUBECONFIG=$(sed -n 's/^KUBECONFIG=//p' "${dir}/cluster.out")
KUBECACHEDIR=${dir}/kubectl
export KUBECONFIG KUBECACHEDIR
kubectl() { "${dir}/cluster/bin/kubectl" "$@"; }

show kubectl get nodes

# --- The tour ----------------------------------------------------------------

ice=icecream/example-icecream

uid() { kubectl get deployment example-icecream -o jsonpath='{.metadata.uid}'; }

# told waits until the controller has told so many events with that reason: what is
# told again is counted with the first of them, as a series. Events follow the
# status, and nothing that could be waited for follows them.
told() {
  local counts times until=$((SECONDS + ${deadline%s}))
  local each='{range .items[?(@.reason=="'$1'")]}1 {.series.count}{"\n"}{end}'
  while true; do
    counts=$(kubectl get events.events.k8s.io -o jsonpath="${each}") || counts=''
    times=$(awk '{ sum += $NF } END { print sum + 0 }' <<<"${counts}")
    ((times < $2)) || return 0
    ((SECONDS < until)) || fail "there were not $2 events with reason $1 within ${deadline}"
    a_moment
  done
}

title "An Icecream, and nobody who makes it real"
show kubectl apply -f artifacts/examples/crd-icecream.yaml
show kubectl wait --for=condition=Established --timeout="${deadline}" crd/icecreams.controller.nicoleh.io
show kubectl apply -f artifacts/examples/example-icecream.yaml
show kubectl get icecreams

title "The controller makes it real"
prompt "./controller -kubeconfig=${KUBECONFIG} -bind-address=127.0.0.1:0 &"
begin ./controller -kubeconfig="${KUBECONFIG}" -bind-address=127.0.0.1:0 >"${dir}/controller.log" 2>&1
echo "$! ${cluster}" >"${dir}/pids.new"
mv "${dir}/pids.new" "${dir}/pids"

show kubectl wait --for=condition=Ready --timeout="${deadline}" "${ice}"
show kubectl get icecreams -o wide
show kubectl get deployments
show kubectl get pods -o wide

told Synced 1
say '' "Events tell what happened, each once:"
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
[[ ${after} != "${before}" ]] || fail "the Deployment is the one that was deleted"
say "another Deployment of the same name, which the controller has created."
show kubectl get icecreams -o wide
told DeploymentCreated 2
show kubectl events --for="${ice}"

finished=yes
if [[ -n ${once} ]]; then
  title "All of it happened"
  exit 0
fi

# --- Stay up -----------------------------------------------------------------

title "Now you"
say "The cluster and the controller run until Ctrl-C. In another terminal:" "" \
  "  export KUBECONFIG=${KUBECONFIG}" \
  "  export PATH=${dir}/cluster/bin:\$PATH   # the cluster's kubectl" "" \
  "  kubectl get icecreams -o wide --watch" \
  "  kubectl patch ${ice} --type=merge -p '{\"spec\":{\"deploymentName\":\"renamed\"}}'" \
  "  kubectl patch ${ice} --type=merge -p '{\"spec\":{\"image\":\"does-not-exist\"}}'" \
  "  kubectl describe ${ice}" \
  "  kubectl delete ${ice}" "" \
  "The controller's log is ${dir}/controller.log."
wait "${cluster}" || true
fail "the cluster has ended"
