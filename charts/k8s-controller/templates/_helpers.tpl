{{/* What the program's image is called. The Icecream controller is what the repository is named after. */}}
{{- define "k8s-controller.program" -}}
{{- eq .Values.program "icecream" | ternary .Chart.Name .Values.program -}}
{{- end }}

{{/* The label app.kubernetes.io/name, and a part of all names. */}}
{{- define "k8s-controller.name" -}}
{{- .Values.nameOverride | default (include "k8s-controller.program" .) -}}
{{- end }}

{{/* The image of a container and when to pull it: takes the root, its values, and the default repository. */}}
{{- define "k8s-controller.image" -}}
{{- with index . 1 -}}
image: {{ .repository | default (printf "registry.nicoleh.io/%s" (index $ 2)) }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default (index $ 0).Chart.AppVersion }}{{ end }}
imagePullPolicy: {{ .pullPolicy }}
{{- end -}}
{{- end }}

{{/* Arguments of a container: takes flags by name, of which some have a list of values. */}}
{{- define "k8s-controller.args" -}}
{{- range $flag, $values := . }}
{{- range $value := kindIs "slice" $values | ternary $values (list $values) }}
- {{ printf "-%s=%s" $flag (kindIs "string" $value | ternary $value (toJson $value)) | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/*
The name of the Deployment, and the beginning of all other names. Of a long release name,
only the beginning and a hash are left: names of cluster-scoped objects must differ.
*/}}
{{- define "k8s-controller.fullname" -}}
{{- $name := include "k8s-controller.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- include "k8s-controller.shortened" (list .Release.Name 43) -}}
{{- else -}}
{{- printf "%s-%s" (include "k8s-controller.shortened" (list .Release.Name 23)) $name -}}
{{- end -}}
{{- end }}

{{- define "k8s-controller.shortened" -}}
{{- $name := index . 0 -}}
{{- $length := index . 1 -}}
{{- if le (len $name) $length -}}
{{- $name -}}
{{- else -}}
{{- printf "%s-%s" ($name | trunc (sub $length 7 | int) | trimSuffix "-") ($name | sha256sum | trunc 6) -}}
{{- end -}}
{{- end }}

{{/* The resources of a container without what is null or empty. */}}
{{- define "k8s-controller.resources" -}}
{{- $kept := dict -}}
{{- range $kind, $list := . -}}
{{- range $resource, $quantity := $list -}}
{{- if $quantity -}}
{{- $_ := set $kept $kind (merge (dict $resource $quantity) (index $kept $kind | default dict)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $kept -}}
{{- end }}

{{- define "k8s-controller.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "k8s-controller.fullname" .) -}}
{{- end }}

{{/* The selector of the Deployment, which cannot be changed. */}}
{{- define "k8s-controller.selectorLabels" -}}
app.kubernetes.io/name: {{ include "k8s-controller.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "k8s-controller.labels" -}}
{{- include "k8s-controller.labelsAnd" (list . dict) -}}
{{- end }}

{{/* The same with additional labels, which precede common ones and cannot replace ours. */}}
{{- define "k8s-controller.labelsAnd" -}}
{{- $root := index . 0 -}}
{{- $ours := include "k8s-controller.selectorLabels" $root | fromYaml -}}
{{- $_ := set $ours "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- toYaml (merge $ours (index . 1) $root.Values.commonLabels) -}}
{{- end }}

{{/* The labels of an object and its annotations, in its metadata: takes the root and its values. */}}
{{- define "k8s-controller.marks" -}}
labels:
  {{- include "k8s-controller.labelsAnd" (list (index . 0) (index . 1).labels) | nindent 2 }}
{{- with (index . 1).annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Fails in a release for one namespace, of a program that needs all. */}}
{{- define "k8s-controller.clusterWide" -}}
{{- with .Values.namespace -}}
{{- fail (printf "namespace=%s: %s cannot be restricted to one namespace" . $.Values.program) -}}
{{- end -}}
{{- end }}

{{/* The egress of a NetworkPolicy: takes .Values.networkPolicy. */}}
{{- define "k8s-controller.egress" -}}
egress:
# The API server. It has no Pod to select.
- ports:
  {{- range .apiServer.ports }}
  - port: {{ int . }}
    protocol: TCP
  {{- end }}
  {{- with .apiServer.cidrs }}
  to:
  {{- range . }}
  - ipBlock:
      cidr: {{ . | quote }}
  {{- end }}
  {{- end }}
{{- if .dns.ports }}
- ports:
  {{- range .dns.ports }}
  - port: {{ int . }}
    protocol: UDP
  - port: {{ int . }}
    protocol: TCP
  {{- end }}
  {{- with .dns.to }}
  to:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{/*
The head of a policy about what the controllers' account writes of a resource, up to its
variables: takes the root, the policy's name, the group, the resource and the operations
that the roles allow.
*/}}
{{- define "k8s-controller.policy" -}}
{{- $root := index . 0 -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ include "k8s-controller.fullname" $root }}-{{ index . 1 }}-writes
  labels:
    {{- include "k8s-controller.labels" $root | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [{{ index . 2 | quote }}]
      apiVersions: ["v1"]
      operations: {{ index . 4 | toJson }}
      resources: [{{ index . 3 | quote }}]
  {{- include "k8s-controller.policyConditions" $root | nindent 2 }}
{{- end }}

{{/*
A validation of each policy about objects that the account can create. A finalizer would keep an
object, and the namespace that it is in, beyond the end of a stolen token.
*/}}
{{- define "k8s-controller.finalizersStay" -}}
- expression: |-
    request.operation == "DELETE" || object.metadata.?finalizers.orValue([]).all(f,
    request.operation == "UPDATE" && f in oldObject.metadata.?finalizers.orValue([]))
  message: the controllers may not add finalizers
  reason: Forbidden
{{- end }}

{{/* The controller's account, in a binding. */}}
{{- define "k8s-controller.subjects" -}}
subjects:
- kind: ServiceAccount
  name: {{ include "k8s-controller.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{/*
Whose writes a policy is about: the account's, and nobody else's. A comparison of
strings cannot fail, and if it is false no other condition counts. So whatever becomes
of a policy, it is in no other account's way, unless that has the same name. (Expressions are literal blocks: kustomize changes folded ones.)
*/}}
{{- define "k8s-controller.policyConditions" -}}
{{- $account := include "k8s-controller.serviceAccountName" . -}}
matchConditions:
- name: is-the-controllers-account
  {{- if .Values.policies.everyNamespace }}
  expression: request.userInfo.username.startsWith("system:serviceaccount:") && request.userInfo.username.endsWith({{ printf ":%s" $account | toJson }})
# Another program's account can have the same name. Only this one may update this Lease, and no
# other, in its own namespace.
- name: has-the-lease-of-the-election
  {{- $leases := `authorizer.group("coordination.k8s.io").resource("leases").namespace(request.userInfo.username.split(":")[2])` }}
  expression: |-
    {{ $leases }}.name({{ include "k8s-controller.fullname" . | toJson }}).check("update").allowed() &&
    !{{ $leases }}.check("update").allowed()
  {{- else }}
  expression: request.userInfo.username == {{ printf "system:serviceaccount:%s:%s" .Release.Namespace $account | toJson }}
  {{- end }}
{{- end }}

{{/* Puts a policy in force everywhere: takes the root and the policy's name. The audit log shows what it refuses. */}}
{{- define "k8s-controller.policyBinding" -}}
{{- $root := index . 0 -}}
{{- $name := printf "%s-%s-writes" (include "k8s-controller.fullname" $root) (index . 1) -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}
  labels:
    {{- include "k8s-controller.labels" $root | nindent 4 }}
spec:
  policyName: {{ $name }}
  validationActions: ["Deny", "Audit"]
{{- end }}

{{/*
A condition: an update of somebody else's object leaves its owners, finalizers, labels and
annotations as they are. Takes the root and the keys that can change. Labels say which
Services, policies, controllers and Pods an object belongs to, and networks and runtimes obey
annotations.
*/}}
{{- define "k8s-controller.metadataStays" -}}
{{- $free := concat (rest .) (index . 0).Values.policies.ignoredKeys | toJson -}}
object.metadata.?generateName == oldObject.metadata.?generateName &&
object.metadata.?ownerReferences.orValue([]) == oldObject.metadata.?ownerReferences.orValue([]) &&
object.metadata.?finalizers.orValue([]) == oldObject.metadata.?finalizers.orValue([]) &&
[[object.metadata.?labels.orValue({}), oldObject.metadata.?labels.orValue({})],
 [object.metadata.?annotations.orValue({}), oldObject.metadata.?annotations.orValue({})]].all(m,
  m[0].all(k, k in {{ $free }} || m[0][?k] == m[1][?k]) && m[1].all(k, k in {{ $free }} || k in m[0]))
{{- end }}

{{/* How to allow what a message refuses. */}}
{{- define "k8s-controller.whereIgnored" }} (if the cluster's own policies change a label or annotation, name it in policies.ignoredKeys in the chart's values){{ end }}
