{{- /* What nodereboot is allowed to do. */}}
{{- define "k8s-controller.nodereboot.rules" }}
- apiGroups: [""]
  resources: ["nodes"]
  verbs: ["list", "watch", "patch"]
- apiGroups: [""]
  resources: ["events"]
  verbs: ["create", "patch"]
{{- end }}
{{- /* What it adds to the Pod: its flags, and the files for its connection to Prometheus. */}}
{{- define "k8s-controller.nodereboot.pod" }}
{{- include "k8s-controller.clusterWide" . }}
{{- $secret := dig "secretName" "" (.Values.nodereboot.prometheus | default dict) }}
args:
{{- if $secret }}
- -prometheus-config=/etc/nodereboot/prometheus/config.yaml
{{- end }}
{{- with .Values.nodereboot.flags }}
{{- include "k8s-controller.args" . }}
{{- end }}
{{- if $secret }}
volumeMounts:
- name: prometheus
  mountPath: /etc/nodereboot/prometheus
  readOnly: true
volumes:
- name: prometheus
  secret:
    secretName: {{ $secret }}
{{- end }}
{{- end }}
{{- /* The namespace of its agents. */}}
{{- define "k8s-controller.agentNamespace" -}}
{{- .Values.nodereboot.agent.namespace | default .Release.Namespace -}}
{{- end }}
