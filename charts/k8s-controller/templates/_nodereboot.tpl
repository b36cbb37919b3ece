{{- /* What nodereboot adds to the Pod: the namespace of its agents, and the files that it needs
to ask Prometheus. */}}
{{- define "k8s-controller.nodereboot.pod" }}
{{- if .Values.controllers.nodereboot.enabled }}
{{- $prometheus := .Values.controllers.nodereboot.prometheus | default dict }}
{{- $ca := $prometheus.ca | default dict }}
{{- $token := $prometheus.token | default dict }}
{{- $password := $prometheus.password | default dict }}
{{- $client := $prometheus.client | default dict }}
{{- $hasFiles := or $ca.secretName $ca.configMapName $token.secretName $password.secretName $client.secretName }}
{{- if and $ca.secretName $ca.configMapName }}
{{- fail "controllers.nodereboot.prometheus.ca is a Secret or a ConfigMap, not both" }}
{{- end }}
{{- if and $hasFiles (not (hasPrefix "https://" (index .Values.flags "nodereboot-prometheus-url" | default ""))) }}
{{- fail "controllers.nodereboot.prometheus needs a flag nodereboot-prometheus-url that begins with https://" }}
{{- end }}
args:
- -nodereboot-agent-namespace={{ include "k8s-controller.agentNamespace" . }}
{{- if or $ca.secretName $ca.configMapName }}
- -nodereboot-prometheus-ca-file=/etc/k8s-controller/prometheus/ca.crt
{{- end }}
{{- if $token.secretName }}
- -nodereboot-prometheus-token-file=/etc/k8s-controller/prometheus/token
{{- end }}
{{- if $password.secretName }}
- -nodereboot-prometheus-password-file=/etc/k8s-controller/prometheus/password
{{- end }}
{{- if $client.secretName }}
- -nodereboot-prometheus-cert-file=/etc/k8s-controller/prometheus/tls.crt
- -nodereboot-prometheus-key-file=/etc/k8s-controller/prometheus/tls.key
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
{{- end }}
