{{/*
A policy about what the Icecream controller may write of one kind of child, and its
binding. Anyone who can write Deployments can run anything with any service account. The
account can write objects that an Icecream controls. If they have Pods, these get no token,
nothing of the host, no privileges and no Secret, unless they had it before. Everything else
gives no power, so the cluster's own webhooks and policies can add it. Nothing is deleted.

  name        of the policy, without what all have in common
  group, resource, kind
  pods        whether it has a template of Pods, at spec.template
  volumes     an expression for a volume v that they may have, besides those of all
*/}}
{{- define "k8s-controller.childPolicy" -}}
{{- $name := printf "%s-%s-writes" (include "k8s-controller.fullname" .root) .name }}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name }}
  labels:
    {{- include "k8s-controller.labels" .root | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [{{ .group | quote }}]
      apiVersions: ["v1"]
      operations: ["CREATE", "UPDATE", "DELETE"]
      resources: [{{ .resource | quote }}]
  {{- include "k8s-controller.policyConditions" .root | nindent 2 }}
  variables:
  - name: isDeletion
    expression: request.operation == "DELETE"
  - name: before
    expression: 'request.operation == "UPDATE" ? [oldObject] : []'
  - name: owner
    expression: object.metadata.?ownerReferences.orValue([]).filter(o, o.?controller.orValue(false) && o.kind == "Icecream" && o.apiVersion.startsWith("controller.nicoleh.io/"))
  {{- if .pods }}
  - name: pod
    expression: object.spec.template.spec
  - name: was
    expression: variables.before.map(b, b.spec.template.spec)
  - name: containers
    expression: variables.pod.containers + variables.pod.?initContainers.orValue([])
  - name: containersBefore
    expression: 'request.operation == "UPDATE" ? oldObject.spec.template.spec.containers + oldObject.spec.template.spec.?initContainers.orValue([]) : []'
  {{- end }}
  validations:
  - expression: '!variables.isDeletion'
    message: the Icecream controller deletes no {{ .kind }}
    reason: Forbidden
  # Before an adoption, it has no controller, and is ours by its owner or its labels.
  - expression: |-
      variables.isDeletion || variables.owner.size() == 1 && variables.before.all(b,
        b.metadata.?ownerReferences.orValue([]).all(o, !o.?controller.orValue(false) || o.uid == variables.owner[0].uid) &&
        (b.metadata.?ownerReferences.orValue([]).exists(o, o.uid == variables.owner[0].uid) ||
        b.metadata.?labels[?"app.kubernetes.io/managed-by"].orValue("") == "icecream-controller" && "controller.nicoleh.io/icecream" in b.metadata.labels))
    message: the Icecream controller writes no {{ .kind }} that no Icecream controls
    reason: Forbidden
  {{- if and .pods (not .root.Values.policies.allowPrivilegedPods) }}
  - expression: |-
      variables.isDeletion || variables.pod.?serviceAccountName.orValue("") in [""] + variables.was.map(p, p.?serviceAccountName.orValue("")) &&
      {{ include "k8s-controller.notNew" `p.?automountServiceAccountToken.orValue(true)` }}
    message: the Icecream controller gives Pods no service account and no token{{ include "k8s-controller.whereAllowed" . }}
    reason: Forbidden
  - expression: |-
      variables.isDeletion ||
      {{ include "k8s-controller.notNew" `p.?hostNetwork.orValue(false)` }} &&
      {{ include "k8s-controller.notNew" `p.?hostPID.orValue(false)` }} &&
      {{ include "k8s-controller.notNew" `p.?hostIPC.orValue(false)` }} &&
      variables.containers.all(c, c.?ports.orValue([]).all(p, p.?hostPort.orValue(0) == 0 || variables.containersBefore.exists(b, p in b.?ports.orValue([]))))
    message: the Icecream controller gives Pods no namespaces or ports of the host{{ include "k8s-controller.whereAllowed" . }}
    reason: Forbidden
  - expression: |-
      variables.isDeletion ||
      {{- range $i, $privilege := list
        `!p.?securityContext.?runAsNonRoot.orValue(false)`
        `p.?securityContext.?runAsUser.orValue(1) == 0`
        `p.?securityContext.?seccompProfile.?type.orValue("") == "Unconfined"`
        `p.?securityContext.?appArmorProfile.?type.orValue("") == "Unconfined"`
        `p.?securityContext.?windowsOptions.?hostProcess.orValue(false)`
        `p.?securityContext.?seLinuxOptions.hasValue()` }}
      {{ include "k8s-controller.notNew" $privilege }} &&
      {{- end }}
      {{- range $i, $privilege := list
        `c.?securityContext.?privileged.orValue(false)`
        `c.?securityContext.?allowPrivilegeEscalation.orValue(false)`
        `!c.?securityContext.?runAsNonRoot.orValue(true)`
        `c.?securityContext.?runAsUser.orValue(1) == 0`
        `c.?securityContext.?procMount.orValue("Default") != "Default"`
        `c.?securityContext.?seccompProfile.?type.orValue("") == "Unconfined"`
        `c.?securityContext.?appArmorProfile.?type.orValue("") == "Unconfined"`
        `c.?securityContext.?windowsOptions.?hostProcess.orValue(false)`
        `c.?securityContext.?seLinuxOptions.hasValue()` }}
      (!variables.containers.exists(c, {{ $privilege }}) || variables.containersBefore.exists(c, {{ $privilege }})) &&
      {{- end }}
      variables.containers.all(c, c.?securityContext.?capabilities.?add.orValue([]).all(a,
        variables.containersBefore.exists(b, a in b.?securityContext.?capabilities.?add.orValue([]))))
    message: the Icecream controller gives Pods no privileges{{ include "k8s-controller.whereAllowed" . }}
    reason: Forbidden
  - expression: |-
      variables.isDeletion || variables.pod.?volumes.orValue([]).all(v,
        has(v.emptyDir) || has(v.downwardAPI) || has(v.configMap) || has(v.persistentVolumeClaim) || has(v.ephemeral) || {{ with .volumes }}{{ . }} || {{ end -}}
        has(v.projected) && v.projected.sources.all(s, has(s.configMap) || has(s.downwardAPI)) || variables.was.exists(p, v in p.?volumes.orValue([]))) &&
      variables.containers.all(c,
        c.?envFrom.orValue([]).all(e, !has(e.secretRef) || variables.containersBefore.exists(b, e in b.?envFrom.orValue([]))) &&
        c.?env.orValue([]).all(e, !has(e.valueFrom) || !has(e.valueFrom.secretKeyRef) || variables.containersBefore.exists(b, e in b.?env.orValue([]))))
    message: the Icecream controller gives Pods no Secrets, tokens or directories of the host{{ include "k8s-controller.whereAllowed" . }}
    reason: Forbidden
  {{- end }}
---
{{ include "k8s-controller.policyBinding" (list .root $name) }}
{{- end }}
