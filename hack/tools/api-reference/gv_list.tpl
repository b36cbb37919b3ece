{{- define "gvList" -}}
<!-- Written by hack/update-codegen.sh from pkg/apis; change the comments of the Go types instead. -->

# API reference

Every kind and field of the API, as the Go types and the schema of the CustomResourceDefinition define them. `kubectl explain icecream.spec` shows the same. [Using Icecreams](using.md) explains how to work with them: what is refused, what each status and event means, and what to do about it.
{{ range . }}
{{ template "gvDetails" . }}
{{ end }}
{{- end -}}
