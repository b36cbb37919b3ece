{{/*
Policies about what the controllers' account can write of one kind of child, and their bindings.
Anyone who can write Deployments can run anything with any service account. This account
writes only objects that an Icecream controls, deletes none, adds nothing that keeps them from the
garbage collector, and gives their Pods no power, except in namespaces with the label
controller.nicoleh.io/pods=unrestricted. Power is what the baseline Pod Security Standard forbids, a
root user, any added capability, a service account, and Secrets. What was there before can stay, so
the controller can repair an object to which somebody else has given power.

  root                   what all templates get
  name                   of the policy, between the release's name and "-writes"
  group, resource, kind  of the child
  pods                   whether the child has a Pod template, at spec.template
*/}}
{{- define "k8s-controller.childPolicy" -}}
{{- $isIcecream := `o.kind == "Icecream" && o.apiVersion.startsWith("controller.nicoleh.io/")` }}
{{- $isControlled := printf "object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && %s)" $isIcecream }}
{{- $versions := list }}
{{- range $file, $_ := .root.Files.Glob "files/icecream/crd-*.yaml" }}
{{- range ($.root.Files.Get $file | fromYaml).spec.versions }}
{{- if .served }}{{ $versions = append $versions .name }}{{ end }}
{{- end }}
{{- end }}
{{- include "k8s-controller.policy" (list .root .name .group .resource (list "CREATE" "UPDATE" "DELETE")) }}
  variables:
  - name: ownersBefore
    expression: 'request.operation == "UPDATE" ? oldObject.metadata.?ownerReferences.orValue([]) : []'
  - name: labelsBefore
    expression: 'request.operation == "UPDATE" ? oldObject.metadata.?labels.orValue({}) : {}'
  validations:
  - expression: request.operation != "DELETE" && {{ $isControlled }}
    message: the Icecream controller may only write {{ .kind }}s that an Icecream controls, and may not delete them
    reason: Forbidden
  # The garbage collector deletes an object whose owners do not exist, if the API server knows their
  # versions.
  - expression: |-
      request.operation == "DELETE" || object.metadata.?ownerReferences.orValue([]).all(o, o in variables.ownersBefore ||
      o.kind == "Icecream" && {{ toJson $versions }}.exists(v, o.apiVersion == "controller.nicoleh.io/" + v))
    message: the Icecream controller may not add owners other than Icecreams
    reason: Forbidden
  # A thief who adds thousands of owners keeps the garbage collector busy.
  - expression: |-
      request.operation == "DELETE" || object.metadata.?ownerReferences.orValue([]).size() <=
      variables.ownersBefore.size() + (variables.ownersBefore.exists(o, o.?controller.orValue(false)) ? 0 : 1)
    message: the Icecream controller may not add another owner than the one that controls the {{ .kind }}
    reason: Forbidden
  {{- include "k8s-controller.finalizersStay" . | nindent 2 }}
  # A {{ .kind }} adopts what its selector matches, and takes it along when it is deleted.
  - expression: |-
      request.operation != "CREATE" || "controller.nicoleh.io/icecream" in object.spec.selector.?matchLabels.orValue({})
    message: the Icecream controller may only select by the label controller.nicoleh.io/icecream
    reason: Forbidden
  # No other controller, and an Icecream as an owner or the labels of an orphan.
  - expression: |-
      request.operation != "UPDATE" ||
      variables.ownersBefore.all(o, !o.?controller.orValue(false) || {{ $isIcecream }}) &&
      (variables.ownersBefore.exists(o, {{ $isIcecream }}) || "controller.nicoleh.io/icecream" in variables.labelsBefore &&
      variables.labelsBefore[?"app.kubernetes.io/managed-by"].orValue("") == "icecream-controller")
    message: the Icecream controller may not change {{ .kind }}s of other owners
    reason: Forbidden
  {{- if .pods }}
  - expression: |-
      request.operation == "DELETE" || object.spec.template.?metadata.?finalizers.orValue([]).all(f,
      request.operation == "UPDATE" && f in oldObject.spec.template.?metadata.?finalizers.orValue([]))
    message: the Icecream controller may not give Pods finalizers
    reason: Forbidden
  {{- end }}
---
{{ include "k8s-controller.policyBinding" (list .root .name) }}
{{- if .pods }}
---
# What the Pods of these {{ .kind }}s can do. A policy of its own, because it also denies what the
# controller does for an Icecream whose template asks for more. So its denials are no alert.
{{ include "k8s-controller.policy" (list .root (printf "%s-pods" .name) .group .resource (list "CREATE" "UPDATE")) }}
  variables:
  # The Pod template after the write and, if there was one, before it; its containers likewise.
  - name: templates
    expression: '[object.spec.template] + (request.operation == "UPDATE" ? [oldObject.spec.template] : [])'
  - name: containers
    expression: variables.templates.map(t, t.spec.containers + t.spec.?initContainers.orValue([])) + [[]]
  - name: volumesBefore
    expression: 'request.operation == "UPDATE" ? oldObject.spec.template.spec.?volumes.orValue([]) : []'
  # The power of the Pod after the write, and before it. An empty string is none.
  - name: podPower
    expression: |-
      variables.templates.map(t, [
        t.spec.?serviceAccountName.orValue("") != "" ? "service account " + t.spec.serviceAccountName : "",
        t.spec.?automountServiceAccountToken.orValue(true) ? "a token" : "",
        t.spec.?hostNetwork.orValue(false) ? "hostNetwork" : "",
        t.spec.?hostPID.orValue(false) ? "hostPID" : "",
        t.spec.?hostIPC.orValue(false) ? "hostIPC" : "",
        t.spec.?securityContext.?runAsNonRoot.orValue(false) && t.spec.?securityContext.?runAsUser.orValue(1) != 0 ? "" : "root",
        t.spec.?securityContext.?seccompProfile.?type.orValue("") == "Unconfined" ? "no seccomp" : "",
        t.spec.?securityContext.?appArmorProfile.?type.orValue("") == "Unconfined" ? "no AppArmor" : "",
        t.spec.?securityContext.?seLinuxOptions.optMap(s, "SELinux " + s.?user.orValue("") + ":" + s.?role.orValue("") + ":" + s.?type.orValue("")).orValue(""),
        t.spec.?securityContext.?windowsOptions.?hostProcess.orValue(false) ? "hostProcess" : ""] +
      t.spec.?securityContext.?sysctls.orValue([]).map(s, "sysctl " + s.name + "=" + s.value) +
      t.?metadata.?annotations.orValue({}).filter(k, k.startsWith("container.apparmor.security.beta.kubernetes.io/") &&
        t.metadata.annotations[k] == "unconfined") +
      t.spec.?volumes.orValue([]).filter(v, !(v in variables.volumesBefore || has(v.emptyDir) || has(v.configMap) || has(v.downwardAPI) ||
        has(v.persistentVolumeClaim) || has(v.ephemeral) || has(v.image) || has(v.projected) &&
        v.projected.?sources.orValue([]).all(s, has(s.configMap) || has(s.downwardAPI) || has(s.clusterTrustBundle)))).map(v, "volume " + v.name)) + [[]]
  # The same of each container, and of the one that had its name before.
  - name: containerPower
    expression: |-
      variables.containers[0].map(after, ([after] + variables.containers[1].filter(c, c.name == after.name)).map(c, [
        c.?securityContext.?privileged.orValue(false) ? "privileged" : "",
        c.?securityContext.?allowPrivilegeEscalation.orValue(false) ? "allowPrivilegeEscalation" : "",
        c.?securityContext.?runAsNonRoot.orValue(true) && c.?securityContext.?runAsUser.orValue(1) != 0 ? "" : "root",
        c.?securityContext.?procMount.orValue("Default") != "Default" ? "procMount" : "",
        c.?securityContext.?seccompProfile.?type.orValue("") == "Unconfined" ? "no seccomp" : "",
        c.?securityContext.?appArmorProfile.?type.orValue("") == "Unconfined" ? "no AppArmor" : "",
        c.?securityContext.?seLinuxOptions.optMap(s, "SELinux " + s.?user.orValue("") + ":" + s.?role.orValue("") + ":" + s.?type.orValue("")).orValue(""),
        c.?securityContext.?windowsOptions.?hostProcess.orValue(false) ? "hostProcess" : ""] +
      c.?securityContext.?capabilities.?add.orValue([]).map(a, "capability " + a) +
      c.?ports.orValue([]).filter(p, p.?hostPort.orValue(0) != 0).map(p, "hostPort " + string(p.hostPort)) +
      [c.?livenessProbe, c.?readinessProbe, c.?startupProbe].map(p, p.?httpGet.?host.orValue(p.?tcpSocket.?host.orValue(""))).filter(h, h != "").map(h, "probe of " + h) +
      [c.?lifecycle.?postStart, c.?lifecycle.?preStop].map(p, p.?httpGet.?host.orValue(p.?tcpSocket.?host.orValue(""))).filter(h, h != "").map(h, "hook at " + h) +
      c.?envFrom.orValue([]).filter(e, has(e.secretRef)).map(e, "Secret " + e.secretRef.?name.orValue("")) +
      c.?env.orValue([]).filter(e, has(e.valueFrom) && has(e.valueFrom.secretKeyRef)).map(e,
        "Secret " + e.valueFrom.secretKeyRef.?name.orValue("") + "/" + e.valueFrom.secretKeyRef.key)) + [[]])
  - name: added
    expression: ([variables.podPower] + variables.containerPower).map(p, p[0].filter(s, s != "" && !(s in p[1])).join(", ")).filter(s, s != "").join(", ")
  validations:
  # The label is of the namespace, which a tenant cannot change. The other policy denies what no
  # Icecream controls; denied by both, it would have either message.
  - expression: |-
      namespaceObject.metadata.?labels[?"controller.nicoleh.io/pods"].orValue("") == "unrestricted" || variables.added == "" ||
      !{{ $isControlled }}
    message: the Icecream controller may not give Pods a service account, a token, a Secret, anything of the host, or privileges
    messageExpression: |-
      "the Icecream controller may not give Pods more power: " + variables.added +
      " (to allow that in this namespace, label it: kubectl label namespace " + request.namespace + " controller.nicoleh.io/pods=unrestricted)"
    reason: Forbidden
---
{{ include "k8s-controller.policyBinding" (list .root (printf "%s-pods" .name)) }}
{{- end }}
{{- end }}
