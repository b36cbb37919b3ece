{{- define "type" -}}
{{- if markdownShouldRenderType . }}
### {{ .Name }}

{{ .Doc }}
{{ if .References }}
Used in:{{ range $i, $t := .SortedReferences }}{{ if $i }},{{ end }} {{ markdownRenderTypeLink $t }}{{ end }}.
{{ end }}
{{- if .Members }}
| Field | Meaning | Default | Allowed |
| --- | --- | --- | --- |
{{ if .GVK -}}
| `apiVersion` _string_ | `{{ .GVK.Group }}/{{ .GVK.Version }}` | | |
| `kind` _string_ | `{{ .GVK.Kind }}` | | |
{{ end -}}
{{ range .Members -}}
| `{{ .Name }}` _{{ markdownRenderType .Type }}_ | {{ template "type_members" . }} | {{ with .Default }}`{{ . | replace "{  }" "{}" }}`{{ end }} | {{ template "allowed" . }} |
{{ end -}}
{{ end -}}
{{ end -}}
{{- end -}}

{{- define "allowed" -}}
{{- $all := list -}}
{{- range .Validation -}}{{- if not (or (hasPrefix "Optional" .) (hasPrefix "Required" .) (hasPrefix "Schemaless" .)) -}}{{- $all = append $all (markdownRenderFieldDoc .) -}}{{- end -}}{{- end -}}
{{- join "<br />" $all -}}
{{- end -}}
