{{- /* What secretsync is allowed to do, in all namespaces. RBAC cannot select by label: an account
that can list or write copies can list or write all Secrets. */}}
{{- define "k8s-controller.secretsync.rules" }}
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["get", "list", "watch", "create", "patch", "delete"]
# Here and above, get is for the live reads before a Secret is shown or deleted.
- apiGroups: [""]
  resources: ["namespaces"]
  verbs: ["get", "list", "watch"]
# Events about sources are in their namespace, and those about namespaces in default.
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
{{- end }}
{{- end }}
