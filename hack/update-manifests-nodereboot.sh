#!/usr/bin/env bash
# The part of hack/update-manifests.sh about the agent of nodereboot.
set -euo pipefail
# shellcheck disable=SC2154 # hack/update-manifests.sh sets it
: "${temp}"

{
  echo "# The agent of nodereboot, on every node, with everything that it needs. This is
# rendered from charts/k8s-controller: change that, and run hack/update-manifests.sh.
# The image is not published: build it with make image IMAGEFLAGS='--target reboot-agent'.
#
# The policies come first: they restrict what follows."
  values=controllers.nodereboot.enabled=true render policy-nodereboot.yaml
  values=controllers.nodereboot.enabled=true render reboot-agent.yaml
} >"${temp}/reboot-agent.yaml"
{
  echo "# What the controller nodereboot is allowed to do, in addition to
# artifacts/rbac-nodereboot.yaml, with the flag -nodereboot-blocking-pods. This is rendered
# from charts/k8s-controller: change that, and run hack/update-manifests.sh."
  values=controllers.nodereboot.enabled=true,flags.nodereboot-blocking-pods=x render nodereboot-blocking-pods.yaml
} >"${temp}/nodereboot-blocking-pods.yaml"
