{{- define "type_members" -}}
{{- if eq .Name "metadata" -}}
See [ObjectMeta](https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/) in the Kubernetes API.
{{- else -}}
{{ markdownRenderFieldDoc .Doc | replace "<br />" " " }}
{{- end -}}
{{- end -}}
