{{- /* What podtimestamp is allowed to do. */}}
{{- define "k8s-controller.podtimestamp.rules" }}
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["list", "watch", "patch"]
- apiGroups: [""]
  resources: ["events"]
  verbs: ["create", "patch"]
# get is to say that the namespace of -namespace does not exist.
- apiGroups: [""]
  resources: ["namespaces"]
  verbs: ["get"]
{{- end }}
{{- /* What it adds to the Pod: nothing. */}}
{{- define "k8s-controller.podtimestamp.pod" }}
{{- end }}
