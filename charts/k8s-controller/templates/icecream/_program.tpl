{{- /* What the Icecream controller is allowed to do. */}}
{{- define "k8s-controller.icecream.rules" }}
# get is for the live read before the controller adopts or re-creates a Deployment.
- apiGroups: ["controller.nicoleh.io"]
  resources: ["icecreams"]
  verbs: ["get", "list", "watch"]
- apiGroups: ["controller.nicoleh.io"]
  resources: ["icecreams/status"]
  verbs: ["update"]
# An owner reference with blockOwnerDeletion needs this.
- apiGroups: ["controller.nicoleh.io"]
  resources: ["icecreams/finalizers"]
  verbs: ["update"]
# An API server with OwnerReferencesPermissionEnforcement requires delete for a change of
# owners, such as an adoption. The controller deletes nothing, and the policy denies it.
- apiGroups: ["apps"]
  resources: ["deployments"]
  verbs: ["list", "watch", "create", "patch", "delete"]
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["list", "watch"]
- apiGroups: [""]
  resources: ["events"]
  verbs: ["create", "patch"]
# get is to say that the namespace of -namespace does not exist.
- apiGroups: [""]
  resources: ["namespaces"]
  verbs: ["get"]
{{- end }}
{{- /* What it adds to the Pod: nothing. */}}
{{- define "k8s-controller.icecream.pod" }}
{{- end }}
