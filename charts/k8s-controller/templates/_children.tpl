{{/*
A policy about what the Icecream controller may write of one kind of child, and its
binding. Who may write Deployments may run anything with any service account. The account
may write objects that an Icecream controls. If they have Pods, these have no token, nothing
of the host, no privileges, and no Secret or other data of the namespace. What somebody else
has added to such an object with a permission of their own may stay. What gives no power is
not looked at, because the cluster's own webhooks and policies may add it.

  name        of the policy, without what all have in common
  group, resource, kind
  pods        whether it has a template of Pods, at spec.template
  labels      what keys of labels these have, besides the usual ones
  annotation  and the key of their annotation
  volumes     an expression for a volume v that they may have, besides empty ones
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
  # Owners, and the one that is the controller: the API server allows at most one.
  - name: ownersBefore
    expression: 'request.operation == "CREATE" ? [] : oldObject.metadata.?ownerReferences.orValue([])'
  - name: ownersAfter
    expression: object.metadata.?ownerReferences.orValue([])
  - name: controllerBefore
    expression: variables.ownersBefore.filter(o, o.?controller.orValue(false))
  - name: controllerAfter
    expression: variables.ownersAfter.filter(o, o.?controller.orValue(false))
  - name: wasIcecreams
    expression: variables.controllerBefore.exists(o, o.kind == "Icecream" && o.apiVersion.startsWith("controller.nicoleh.io/"))
  - name: isIcecreams
    expression: variables.controllerAfter.exists(o, o.kind == "Icecream" && o.apiVersion.startsWith("controller.nicoleh.io/"))
  # An Icecream has left it behind, and another can adopt it.
  - name: wasOrphan
    expression: |-
      request.operation == "UPDATE" && variables.controllerBefore.size() == 0 &&
      oldObject.metadata.?labels[?"app.kubernetes.io/managed-by"].orValue("") == "icecream-controller" &&
      "controller.nicoleh.io/icecream" in oldObject.metadata.?labels.orValue({})
  {{- if .pods }}
  # The Pod template, and a list with the previous one, if there is one.
  - name: pod
    expression: object.spec.template.spec
  - name: was
    expression: 'request.operation == "UPDATE" ? [oldObject.spec.template.spec] : []'
  - name: containers
    expression: variables.pod.containers + variables.pod.?initContainers.orValue([])
  - name: containersBefore
    expression: 'request.operation == "UPDATE" ? oldObject.spec.template.spec.containers + oldObject.spec.template.spec.?initContainers.orValue([]) : []'
  - name: volumesBefore
    expression: 'request.operation == "UPDATE" ? oldObject.spec.template.spec.?volumes.orValue([]) : []'
  - name: labelsBefore
    expression: 'request.operation == "UPDATE" ? oldObject.spec.template.metadata.?labels.orValue({}) : {}'
  - name: annotationsBefore
    expression: 'request.operation == "UPDATE" ? oldObject.spec.template.metadata.?annotations.orValue({}) : {}'
  {{- include "k8s-controller.policyKeys" (dict "root" .root "free" (append .labels .annotation) "protected" list) | nindent 2 }}
  {{- end }}
  validations:
  - expression: variables.isDeletion || variables.isIcecreams
    message: the Icecream controller writes no {{ .kind }} that no Icecream controls
    reason: Forbidden
  - expression: request.operation == "CREATE" || variables.wasIcecreams || variables.wasOrphan
    message: the Icecream controller changes and deletes no {{ .kind }} of anybody else
    reason: Forbidden
  - expression: |-
      variables.isDeletion ||
      (variables.controllerBefore.size() == 0 || variables.controllerBefore.map(o, o.uid) == variables.controllerAfter.map(o, o.uid)) &&
      variables.ownersBefore.filter(o, !o.?controller.orValue(false)) == variables.ownersAfter.filter(o, !o.?controller.orValue(false)) &&
      object.metadata.?finalizers.orValue([]) == (request.operation == "UPDATE" ? oldObject.metadata.?finalizers.orValue([]) : [])
    message: the Icecream controller changes neither finalizers nor any owner but by adoption (policies.create in the chart's values turns all such rules off)
    reason: Forbidden
  {{- if .pods }}
  {{- if not (has "serviceAccount" .root.Values.policies.allow) }}
  - expression: |-
      variables.isDeletion ||
      (variables.pod.?serviceAccountName.orValue("") == "" || variables.was.exists(w, w.?serviceAccountName == variables.pod.?serviceAccountName)) &&
      (!variables.pod.?automountServiceAccountToken.orValue(true) || variables.was.exists(w, w.?automountServiceAccountToken.orValue(true)))
    message: the Icecream controller gives Pods no service account and no token{{ include "k8s-controller.whereAllowed" "serviceAccount" }}
    reason: Forbidden
  {{- end }}
  {{- if not (has "host" .root.Values.policies.allow) }}
  - expression: |-
      variables.isDeletion ||
      (!variables.pod.?hostNetwork.orValue(false) || variables.was.exists(w, w.?hostNetwork.orValue(false))) &&
      (!variables.pod.?hostPID.orValue(false) || variables.was.exists(w, w.?hostPID.orValue(false))) &&
      (!variables.pod.?hostIPC.orValue(false) || variables.was.exists(w, w.?hostIPC.orValue(false))) &&
      variables.containers.all(c, c.?ports.orValue([]).all(p, p.?hostPort.orValue(0) == 0 ||
        variables.containersBefore.exists(b, b.name == c.name && p in b.?ports.orValue([]))))
    message: the Icecream controller gives Pods no namespaces or ports of the host{{ include "k8s-controller.whereAllowed" "host" }}
    reason: Forbidden
  {{- end }}
  {{- if not (has "probes" .root.Values.policies.allow) }}
  # The kubelet sends these requests from the node.
  - expression: |-
      variables.isDeletion ||
      variables.containers.all(c,
        [c.?livenessProbe, c.?readinessProbe, c.?startupProbe].all(p, p.?httpGet.?host.orValue("") == "" && p.?tcpSocket.?host.orValue("") == "") &&
        [c.?lifecycle.?postStart, c.?lifecycle.?preStop].all(h, h.?httpGet.?host.orValue("") == "" && h.?tcpSocket.?host.orValue("") == "") ||
        variables.containersBefore.exists(b, b.name == c.name && b.?lifecycle == c.?lifecycle &&
          b.?livenessProbe == c.?livenessProbe && b.?readinessProbe == c.?readinessProbe && b.?startupProbe == c.?startupProbe))
    message: the Icecream controller has the kubelet send nothing to other hosts{{ include "k8s-controller.whereAllowed" "probes" }}
    reason: Forbidden
  {{- end }}
  {{- if not (has "privileges" .root.Values.policies.allow) }}
  - expression: |-
      variables.isDeletion ||
      (variables.pod.?securityContext.?runAsNonRoot.orValue(false) || variables.was.exists(w, !w.?securityContext.?runAsNonRoot.orValue(false))) &&
      (variables.pod.?securityContext.?runAsUser.orValue(1) != 0 || variables.was.exists(w, w.?securityContext.?runAsUser.orValue(1) == 0)) &&
      (variables.pod.?securityContext.?seccompProfile.?type.orValue("") != "Unconfined" || variables.was.exists(w, w.?securityContext.?seccompProfile.?type.orValue("") == "Unconfined")) &&
      (variables.pod.?securityContext.?appArmorProfile.?type.orValue("") != "Unconfined" || variables.was.exists(w, w.?securityContext.?appArmorProfile.?type.orValue("") == "Unconfined")) &&
      (!variables.pod.?securityContext.?windowsOptions.hasValue() || variables.was.exists(w, w.?securityContext.?windowsOptions == variables.pod.?securityContext.?windowsOptions)) &&
      (!variables.pod.?securityContext.?seLinuxOptions.hasValue() || variables.was.exists(w, w.?securityContext.?seLinuxOptions == variables.pod.?securityContext.?seLinuxOptions)) &&
      (variables.pod.?securityContext.?sysctls.orValue([]).size() == 0 || variables.was.exists(w, w.?securityContext.?sysctls == variables.pod.?securityContext.?sysctls))
    message: the Icecream controller gives Pods no privileges{{ include "k8s-controller.whereAllowed" "privileges" }}
    reason: Forbidden
  - expression: |-
      variables.isDeletion ||
      variables.containers.all(c,
        !c.?securityContext.?privileged.orValue(false) &&
        !c.?securityContext.?allowPrivilegeEscalation.orValue(false) &&
        c.?securityContext.?capabilities.?add.orValue([]).size() == 0 &&
        c.?securityContext.?runAsNonRoot.orValue(true) &&
        c.?securityContext.?runAsUser.orValue(1) != 0 &&
        c.?securityContext.?procMount.orValue("Default") == "Default" &&
        c.?securityContext.?seccompProfile.?type.orValue("") != "Unconfined" &&
        c.?securityContext.?appArmorProfile.?type.orValue("") != "Unconfined" &&
        !c.?securityContext.?windowsOptions.hasValue() &&
        !c.?securityContext.?seLinuxOptions.hasValue() ||
        variables.containersBefore.exists(b, b.name == c.name &&
          (!c.?securityContext.?privileged.orValue(false) || b.?securityContext.?privileged.orValue(false)) &&
          (!c.?securityContext.?allowPrivilegeEscalation.orValue(false) || b.?securityContext.?allowPrivilegeEscalation.orValue(false)) &&
          c.?securityContext.?capabilities.?add.orValue([]).all(a, a in b.?securityContext.?capabilities.?add.orValue([])) &&
          (c.?securityContext.?runAsNonRoot.orValue(true) || !b.?securityContext.?runAsNonRoot.orValue(true)) &&
          (c.?securityContext.?runAsUser.orValue(1) != 0 || b.?securityContext.?runAsUser.orValue(1) == 0) &&
          (c.?securityContext.?procMount.orValue("Default") == b.?securityContext.?procMount.orValue("Default")) &&
          (c.?securityContext.?seccompProfile == b.?securityContext.?seccompProfile) &&
          (c.?securityContext.?appArmorProfile == b.?securityContext.?appArmorProfile) &&
          (c.?securityContext.?windowsOptions == b.?securityContext.?windowsOptions) &&
          (c.?securityContext.?seLinuxOptions == b.?securityContext.?seLinuxOptions)))
    message: the Icecream controller gives containers no privileges{{ include "k8s-controller.whereAllowed" "privileges" }}
    reason: Forbidden
  {{- end }}
  {{- if not (has "volumes" .root.Values.policies.allow) }}
  - expression: |-
      variables.isDeletion ||
      variables.pod.?volumes.orValue([]).all(v, has(v.emptyDir) || has(v.downwardAPI) || {{ with .volumes }}{{ . }} || {{ end }}v in variables.volumesBefore) &&
      variables.containers.all(c,
        c.?envFrom.orValue([]).all(e, variables.containersBefore.exists(b, b.name == c.name && e in b.?envFrom.orValue([]))) &&
        c.?env.orValue([]).all(e,
          !has(e.valueFrom) || has(e.valueFrom.fieldRef) || has(e.valueFrom.resourceFieldRef) ||
          variables.containersBefore.exists(b, b.name == c.name && e in b.?env.orValue([]))))
    message: the Icecream controller gives Pods no Secrets, ConfigMaps or volumes{{ include "k8s-controller.whereAllowed" "volumes" }}
    reason: Forbidden
  {{- end }}
  {{- if not (has "scheduling" .root.Values.policies.allow) }}
  - expression: |-
      variables.isDeletion ||
      (variables.pod.?nodeName.orValue("") == "" || variables.was.exists(w, w.?nodeName == variables.pod.?nodeName)) &&
      (variables.pod.?priorityClassName.orValue("") == "" || variables.was.exists(w, w.?priorityClassName == variables.pod.?priorityClassName)) &&
      (variables.pod.?runtimeClassName.orValue("") == "" || variables.was.exists(w, w.?runtimeClassName == variables.pod.?runtimeClassName)) &&
      (variables.pod.?resourceClaims.orValue([]).size() == 0 || variables.was.exists(w, w.?resourceClaims == variables.pod.?resourceClaims))
    message: the Icecream controller gives Pods no node, priority, runtime or devices{{ include "k8s-controller.whereAllowed" "scheduling" }}
    reason: Forbidden
  {{- end }}
  - expression: |-
      variables.isDeletion ||
      [[object.spec.template.metadata.?labels.orValue({}), variables.labelsBefore], [object.spec.template.metadata.?annotations.orValue({}), variables.annotationsBefore]].all(m,
        m[0].all(k, k in variables.free || m[1][?k].orValue("") == m[0][k] && k in m[1] || !variables.protected.exists(p, k == p || k.startsWith(p + "/"))))
    message: the Icecream controller gives Pods no labels or annotations that give them more than the controller does{{ include "k8s-controller.whereKeys" . }}
    reason: Forbidden
  {{- end }}
---
{{ include "k8s-controller.policyBinding" (list .root $name) }}
{{- end }}
