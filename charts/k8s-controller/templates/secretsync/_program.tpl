{{- /* What secretsync is allowed to do, in all namespaces. RBAC cannot select by label: an account
that can list or write copies can list or write all Secrets. */}}
{{- define "k8s-controller.secretsync.rules" }}
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["list", "watch", "create", "patch", "delete"]
# get is for the live reads before a Secret is shown or deleted.
- apiGroups: [""]
  resources: ["namespaces"]
  verbs: ["get", "list", "watch"]
# Events about Secrets that look like copies are in the same namespace.
- apiGroups: [""]
  resources: ["events"]
  verbs: ["create", "patch"]
{{- end }}
{{- /* What it adds to the Pod: its flags. */}}
{{- define "k8s-controller.secretsync.pod" }}
{{- include "k8s-controller.clusterWide" . }}
{{- with .Values.secretsync }}
args:
- -source-namespace={{ .sourceNamespace }}
- -annotation={{ .annotation }}
- -require-receivers={{ .requireReceivers }}
{{- end }}
{{- end }}
