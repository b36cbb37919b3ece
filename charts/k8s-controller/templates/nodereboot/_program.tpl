{{- /* What nodereboot is allowed to do. */}}
{{- define "k8s-controller.nodereboot.rules" }}
- apiGroups: [""]
  resources: ["nodes"]
  verbs: ["list", "watch", "patch"]
- apiGroups: [""]
  resources: ["events"]
  verbs: ["create", "patch"]
{{- end }}
{{- /* What it adds to the Pod: the namespace of its agents, its flags, and the files that it needs
to ask Prometheus. */}}
{{- define "k8s-controller.nodereboot.pod" }}
{{- include "k8s-controller.clusterWide" . }}
{{- $prometheus := .Values.nodereboot.prometheus | default dict }}
{{- $ca := $prometheus.ca | default dict }}
{{- $token := $prometheus.token | default dict }}
{{- $password := $prometheus.password | default dict }}
{{- $client := $prometheus.client | default dict }}
{{- $hasFiles := or $ca.secretName $ca.configMapName $token.secretName $password.secretName $client.secretName }}
{{- if and $ca.secretName $ca.configMapName }}
{{- fail "nodereboot.prometheus.ca is a Secret or a ConfigMap, not both" }}
{{- end }}
{{- if and $hasFiles (not (hasPrefix "https://" (index .Values.nodereboot.flags "prometheus-url" | default ""))) }}
{{- fail "nodereboot.prometheus needs a flag prometheus-url in nodereboot.flags that begins with https://" }}
{{- end }}
args:
- -agent-namespace={{ include "k8s-controller.agentNamespace" . }}
{{- if or $ca.secretName $ca.configMapName }}
- -prometheus-ca-file=/etc/k8s-controller/prometheus/ca.crt
{{- end }}
{{- if $token.secretName }}
- -prometheus-token-file=/etc/k8s-controller/prometheus/token
{{- end }}
{{- if $password.secretName }}
- -prometheus-password-file=/etc/k8s-controller/prometheus/password
{{- end }}
{{- if $client.secretName }}
- -prometheus-cert-file=/etc/k8s-controller/prometheus/tls.crt
- -prometheus-key-file=/etc/k8s-controller/prometheus/tls.key
{{- end }}
{{- with .Values.nodereboot.flags }}
{{- include "k8s-controller.args" . }}
{{- end }}
{{- if $hasFiles }}
volumeMounts:
- name: prometheus
  mountPath: /etc/k8s-controller/prometheus
  readOnly: true
volumes:
- name: prometheus
  projected:
    sources:
    {{- range $kind, $name := dict "configMap" $ca.configMapName "secret" $ca.secretName }}
    {{- with $name }}
    - {{ $kind }}:
        name: {{ . }}
        items:
        - {key: {{ $ca.key | default "ca.crt" | quote }}, path: ca.crt}
    {{- end }}
    {{- end }}
    {{- with $token.secretName }}
    - secret:
        name: {{ . }}
        items:
        - {key: {{ $token.key | default "token" | quote }}, path: token}
    {{- end }}
    {{- with $password.secretName }}
    - secret:
        name: {{ . }}
        items:
        - {key: {{ $password.key | default "password" | quote }}, path: password}
    {{- end }}
    {{- with $client.secretName }}
    - secret:
        name: {{ . }}
        items:
        - {key: tls.crt, path: tls.crt}
        - {key: tls.key, path: tls.key}
    {{- end }}
{{- end }}
{{- end }}
{{- /* The namespace of its agents. */}}
{{- define "k8s-controller.agentNamespace" -}}
{{- .Values.nodereboot.agent.namespace | default .Release.Namespace -}}
{{- end }}
