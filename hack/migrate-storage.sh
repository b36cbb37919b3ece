#!/usr/bin/env bash
# Has each object of a CustomResourceDefinition written once, so that etcd has it in the version that is
# stored now, and then leaves only this version in status.storedVersions. storagemigration.k8s.io does it
# where the API server has that; updates that change nothing do it anywhere, and with BY_HAND=1.
#
#   hack/migrate-storage.sh icecreams.controller.nicoleh.io
set -euo pipefail
crd=$1
resource=${crd%%.*} group=${crd#*.}
stored=$(kubectl get crd "${crd}" -o jsonpath='{.spec.versions[?(@.storage==true)].name}')
api=$(kubectl api-versions | grep -xE 'storagemigration\.k8s\.io/v1(beta1)?' | head -n 1 || true)

# update writes all objects as they are. Whatever else changes one in between makes it fail.
update() {
  local objects
  objects=$(kubectl get "${crd}" --all-namespaces --output=json)
  if [[ ${objects} == *'"items": []'* ]]; then
    return
  fi
  kubectl replace --filename=- <<<"${objects}"
}

if [[ -n ${api} && -z ${BY_HAND:-} ]]; then
  migration=$(kubectl create --output=name --filename=- <<YAML
apiVersion: ${api}
kind: StorageVersionMigration
metadata: {generateName: ${resource}-}
spec: {resource: {group: ${group}, resource: ${resource}}}
YAML
  )
  kubectl wait --for=condition=Succeeded --timeout=10m "${migration}"
else
  sleep 10 # until each API server stores the new version
  tries=1
  until update; do
    if ((++tries > 20)); then
      echo "not all ${resource} can be updated" >&2
      exit 1
    fi
    sleep 1
  done
fi
kubectl patch crd "${crd}" --subresource=status --type=merge --patch="{\"status\":{\"storedVersions\":[\"${stored}\"]}}"
