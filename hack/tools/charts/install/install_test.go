// Package install tests every way to install the controller on the local cluster:
// its API server has to take what it gets without a warning, and the nodes, which
// are simulated, have to make the Pods run.
package install

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
)

const (
	artifacts = "../../../../artifacts"
	apps      = "../../../../apps"
	chart     = "../../../../charts/k8s-controller"
	system    = "k8s-controller-system"
)

// site is where things are installed.
type site struct {
	*testing.T
	cluster *cluster.Cluster
	client  kubernetes.Interface
}

func TestInstall(t *testing.T) {
	c, err := cluster.Start(t.Context(), cluster.Options{Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	restrict(site{t, c, client})
	for _, way := range []struct {
		name string
		try  func(site)
	}{
		{"every value file", valueFiles},
		{"apply", apply},
		{"an overlay", overlay},
		{"uninstall, and keep Icecreams", keepIcecreams},
		{"a policy about Icecreams", contractors},
		{"Icecreams in an overlay", overlayOfIcecreams},
		{"helm", helm},
		{"helm, every program", helmEveryProgram},
		{"helm, one namespace", helmOneNamespace},
		{"helm, a reader of metrics", helmMetricsReader},
	} {
		t.Run(way.name, func(t *testing.T) {
			way.try(site{t, c, client})
		})
	}
}

// restrict has the API server refuse Pods, in whatever way they are installed. What OpenShift's
// restricted-v2 refuses: IDs that are not of the namespace's own range. And for agents, which need the
// host's processes and so the privileged standard, everything else: they get no more of the host, no
// capability and no way to more, and its files for no container that is root.
func restrict(s site) {
	const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: restricted}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations:
  - message: must be in the ranges
    expression: >-
      object.spec.?hostPID.orValue(false) ||
      !has(object.spec.securityContext.runAsUser) && !has(object.spec.securityContext.runAsGroup) &&
      !has(object.spec.securityContext.fsGroup) && object.spec.containers.all(c, !has(c.securityContext.runAsUser))
  - message: must have nothing of the host but its processes
    expression: >-
      !object.spec.?hostPID.orValue(false) || !object.spec.?hostNetwork.orValue(false) && !object.spec.?hostIPC.orValue(false) && !has(object.spec.initContainers) &&
      object.spec.?securityContext.?seccompProfile.?type.orValue("") == "RuntimeDefault" &&
      object.spec.containers.all(c, !c.securityContext.allowPrivilegeEscalation && c.securityContext.readOnlyRootFilesystem &&
      c.securityContext.capabilities.drop == ["ALL"] && !has(c.securityContext.capabilities.add) &&
      !c.securityContext.?privileged.orValue(false) &&
      c.?volumeMounts.orValue([]).all(m, !object.spec.volumes.exists(v, v.name == m.name && has(v.hostPath)) ||
      m.?readOnly.orValue(false) && c.securityContext.?runAsNonRoot.orValue(false)))
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: restricted}
spec: {policyName: restricted, validationActions: [Deny]}
`
	s.apply(policy)
	for message, spec := range map[string]string{
		"must be in the ranges":                           `{"securityContext":{"runAsUser":65532},"containers":[{"name":"bad","image":"bad","securityContext":{}}]}`,
		"must have nothing of the host but its processes": `{"hostPID":true,"hostNetwork":true}`,
	} {
		var output []byte
		var err error
		for until := time.Now().Add(time.Minute); time.Now().Before(until) && !strings.Contains(string(output), message); time.Sleep(100 * time.Millisecond) {
			bad := s.command(s.cluster.Kubectl(), "run", "bad", "--image=registry.example.com/bad", "--dry-run=server", "-n=default", `--overrides={"spec":`+spec+"}")
			output, err = bad.CombinedOutput()
		}
		if err == nil || !strings.Contains(string(output), message) {
			s.Fatalf("a Pod with %s is not refused: %s", spec, output)
		}
	}
}

// ofOperators matches objects whose kinds the cluster does not know.
var ofOperators = regexp.MustCompile(`(?m)^kind: (ServiceMonitor|PrometheusRule)$`)

// The API server knows every field of what the chart renders with its value files, and of
// the examples, and takes it without a warning: the Pods meet the restricted standard.
func valueFiles(s site) {
	files, err := filepath.Glob(chart + "/ci/*-values.yaml")
	if err != nil || len(files) == 0 {
		s.Fatalf("there is nothing to render the chart with: %v", err)
	}
	own, err := filepath.Glob(chart + "/ci/*/*-values.yaml")
	if err != nil {
		s.Fatal(err)
	}
	files = append(files, own...)
	s.kubectl("create", "namespace", system)
	s.kubectl("label", "namespace", system, "pod-security.kubernetes.io/warn=restricted")
	bare := s.command(s.cluster.Kubectl(), "create", "deployment", "bare", "--image=registry.example.com/bare", "--dry-run=server", "-n="+system)
	if output, err := bare.CombinedOutput(); err != nil || !strings.Contains(string(output), "would violate PodSecurity") {
		s.Errorf("there is no warning of Pods that are not restricted: %v: %s", err, output)
	}
	namespaces := map[string]bool{"default": true, system: true}
	namespace := regexp.MustCompile(`(?m)^  namespace: (.+)$`)
	for _, values := range files {
		rendered := s.helm("template", "k8s-controller", chart, "-n", system, "--values", values)
		for _, found := range namespace.FindAllStringSubmatch(rendered, -1) {
			if !namespaces[found[1]] {
				s.kubectl("create", "namespace", found[1], "--save-config") // some come with the chart
			}
			namespaces[found[1]] = true
		}
		documents := slices.DeleteFunc(strings.Split(rendered, "\n---\n"), ofOperators.MatchString)
		apply := s.command(s.cluster.Kubectl(), "apply", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "-f", "-")
		apply.Stdin = strings.NewReader(strings.Join(documents, "\n---\n"))
		s.run(apply)
	}
	s.define()
	s.kubectl("apply", "--warnings-as-errors", "-f", artifacts+"/examples")
	s.kubectl("delete", "--ignore-not-found", "-f", artifacts+"/examples") // Icecreams go with their definition
	delete(namespaces, "default")
	s.kubectl(append([]string{"delete", "namespace"}, slices.Collect(maps.Keys(namespaces))...)...)
}

func apply(s site) {
	s.kubectl("apply", "--warnings-as-errors", "-f", artifacts+"/install.yaml")
	s.runs(system, "k8s-controller", 2)
	s.users()
	s.isRestricted(system, "k8s-controller")
	s.kubectl("diff", "-f", artifacts+"/install.yaml") // there is none
	for _, program := range s.programs() {             // whose manifests have nothing in common with it, or with each other
		manifest := apps + "/" + program + "/install.yaml"
		s.kubectl("apply", "--warnings-as-errors", "-f", manifest)
		s.runs(program+"-system", program, 2)
		s.agentsRun()
		s.kubectl("diff", "-f", manifest)
		s.kubectl("delete", "-f", manifest)
	}
	s.kubectl("diff", "-f", artifacts+"/install.yaml")
	s.runs(system, "k8s-controller", 2)
	s.kubectl("delete", "-f", artifacts+"/install.yaml")
}

// shown returns the block of docs/operating.md that begins with these words.
func (s site) shown(words string) string {
	s.Helper()
	content, err := os.ReadFile(artifacts + "/../docs/operating.md")
	if err != nil {
		s.Fatal(err)
	}
	_, text, found := strings.Cut(string(content), "\n"+words)
	text, _, ends := strings.Cut(text, "\n```\n")
	if !found || !ends {
		s.Fatalf("docs/operating.md does not show %s", words)
	}
	return words + text
}

// The commands of docs/operating.md leave the Icecreams, their definition, and nothing else.
func keepIcecreams(s site) {
	s.kubectl("apply", "-f", artifacts+"/install.yaml")
	s.runs(system, "k8s-controller", 2)
	s.kubectl("apply", "-f", artifacts+"/examples/example-icecream.yaml")
	commands := s.command("bash", "-euo", "pipefail", "-c", s.shown("kubectl delete namespace "+system))
	commands.Env = append(commands.Env, "PATH="+filepath.Dir(s.cluster.Kubectl())+string(filepath.ListSeparator)+os.Getenv("PATH"))
	s.run(commands)
	s.is("example-icecream", "icecream/example-icecream", "{.metadata.name}")
	s.nothingIsLeft()
	s.kubectl("delete", "crd/icecreams.controller.nicoleh.io")
}

// A policy keeps contractors from making a Deployment by an Icecream that they could not make themselves.
func contractors(s site) {
	s.define()
	const policy = artifacts + "/examples/policies/contractors.yaml"
	s.kubectl("apply", "--warnings-as-errors", "-f", policy)
	create := func(image, group string) (string, error) {
		command := s.command(s.cluster.Kubectl(), "create", "--dry-run=server", "-f=-", "--as=somebody", "--as-group=system:masters", "--as-group="+group)
		command.Stdin = strings.NewReader("apiVersion: controller.nicoleh.io/v1alpha1\nkind: Icecream\nmetadata: {name: theirs, namespace: default}\nspec: {image: " + image + "}\n")
		output, err := command.CombinedOutput()
		return string(output), err
	}
	const theirs, ours = "elsewhere.example/x:1", "registry.example/x:1"
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		if _, err := create(theirs, "contractors"); err != nil { // The policy is in force.
			break
		}
	}
	for _, attempt := range []struct{ image, group, refusal string }{
		{theirs, "contractors", "contractors use images from registry.example"},
		{ours + ", template: {}", "contractors", "and no template"},
		{ours, "contractors", ""},
		{theirs, "employees", ""},
	} {
		if output, err := create(attempt.image, attempt.group); (err != nil) != (attempt.refusal != "") || !strings.Contains(output, attempt.refusal) {
			s.Errorf("%v: %s", attempt, output)
		}
	}
	s.kubectl("delete", "-f", policy)
	s.kubectl("delete", "-f", definition)
}

// An overlay changes the namespace everywhere, and the image.
func overlay(s site) {
	base, err := filepath.Abs(artifacts)
	if err != nil {
		s.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(s.TempDir())
	if err != nil {
		s.Fatal(err)
	}
	relative, err := filepath.Rel(dir, base)
	if err != nil {
		s.Fatal(err)
	}
	s.write(dir, "kustomization.yaml", `
namespace: dessert
resources: ["`+relative+`"]
images:
- name: registry.nicoleh.io/k8s-controller
  newName: registry.example.com/k8s-controller
`)
	s.kubectl("apply", "--warnings-as-errors", "-k", dir)
	s.runs("dessert", "k8s-controller", 2)
	s.isRestricted("dessert", "k8s-controller")
	s.is("registry.example.com/k8s-controller:v0.1.0", "-n", "dessert", "deployment/k8s-controller", "{.spec.template.spec.containers[0].image}")
	s.is("dessert", "clusterrolebinding/k8s-controller", "{.subjects[0].namespace}")
	s.is("k8s-controller dessert dessert", "flowschema/k8s-controller-lease",
		"{.spec.rules[0].subjects[0].serviceAccount.name} {.spec.rules[0].subjects[0].serviceAccount.namespace} {.spec.rules[0].resourceRules[0].namespaces[0]}")
	s.is("restricted", "namespace/dessert", `{.metadata.labels.pod-security\.kubernetes\.io/enforce}`)
	s.kubectl("delete", "-k", dir)
}

const definition = artifacts + "/examples/crd-icecream.yaml"

// define installs the CustomResourceDefinition alone.
func (s site) define() {
	s.Helper()
	s.kubectl("apply", "-f", definition)
	s.kubectl("wait", `--for=jsonpath={.status.conditions[?(@.type=="Established")].status}=True`, "-f", definition)
}

// An overlay gives an Icecream another name, image and size, and what refers to it follows.
func overlayOfIcecreams(s site) {
	const prod = artifacts + "/examples/shop/prod"
	s.define()
	s.kubectl("apply", "--warnings-as-errors", "-k", prod)
	for _, want := range [][]string{
		{"registry.example/shop:v2 4 prod-shop", "icecream/prod-shop", "{.spec.image} {.spec.replicas} {.spec.deploymentName}"},
		{"prod-shop", "horizontalpodautoscaler/prod-shop", "{.spec.scaleTargetRef.name}"},
		{"prod-shop", "service/prod-shop", `{.spec.selector.controller\.nicoleh\.io/icecream}`},
		{"prod-shop", "poddisruptionbudget/prod-shop", `{.spec.selector.matchLabels.controller\.nicoleh\.io/icecream}`},
		{"prod-shop", "networkpolicy/prod-shop", `{.spec.podSelector.matchLabels.controller\.nicoleh\.io/icecream}`},
		{"prod", "icecream/prod-shop", "{.metadata.labels.env}"},
		{"", "service/prod-shop", "{.spec.selector.env}"},
	} {
		s.is(want[0], want[1:]...)
	}
	s.kubectl("delete", "-k", prod)
	s.kubectl("delete", "-f", definition)
}

// A release is upgraded and uninstalled, and one of another name takes over its definition; Icecreams stay.
func helm(s site) {
	s.kubectl("create", "namespace", system)
	s.kubectl("label", "namespace", system, "pod-security.kubernetes.io/enforce=restricted")
	s.helm("install", "k8s-controller", chart, "-n", system, "--wait", "--timeout=2m")
	s.runs(system, "k8s-controller", 2)
	s.isRestricted(system, "k8s-controller")
	s.kubectl("apply", "-f", artifacts+"/examples/example-icecream.yaml")
	uid := s.get("icecream/example-icecream", "{.metadata.uid}")

	s.helm("upgrade", "k8s-controller", chart, "-n", system, "--wait", "--timeout=2m",
		"--set=replicas=3,flags.workers=16,commonLabels.team=dessert")
	s.runs(system, "k8s-controller", 3)
	s.is("dessert", "crd/icecreams.controller.nicoleh.io", "{.metadata.labels.team}")
	s.is(uid, "icecream/example-icecream", "{.metadata.uid}")

	s.helm("uninstall", "k8s-controller", "-n", system)
	s.nothingIsLeft()
	s.is(uid, "icecream/example-icecream", "{.metadata.uid}")

	s.helm("install", "ice", chart, "-n", system, "--wait", "--timeout=2m", "--take-ownership")
	s.runs(system, "ice-k8s-controller", 2)
	s.is(uid, "icecream/example-icecream", "{.metadata.uid}")
	s.helm("uninstall", "ice", "-n", system)
	s.kubectl("delete", "crd/icecreams.controller.nicoleh.io", "namespace/"+system)
}

// Each program has a release of its own, and agents on each node in a namespace of their own,
// which comes with them and alone admits privileged Pods. A release that goes leaves nothing
// behind, and takes nothing of another with it.
func helmEveryProgram(s site) {
	installed := func(program string) string { return s.labelled("app.kubernetes.io/instance=" + program) }
	programs := append(s.programs(), "icecream")
	before := map[string]string{}
	for _, program := range programs {
		namespace := program + "-system"
		s.kubectl("create", "namespace", namespace)
		s.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted", "pod-security.kubernetes.io/warn=restricted")
		s.helm("install", program, chart, "-n", namespace, "--wait", "--timeout=2m", "--set=program="+program)
		before[program] = installed(program)
	}
	s.agentsRun()
	for i, program := range programs {
		s.helm("uninstall", program, "-n", program+"-system")
		if left := installed(program); left != "" {
			s.Errorf("%s leaves %s", program, left)
		}
		for _, another := range programs[i+1:] {
			if after := installed(another); after != before[another] {
				s.Errorf("%s takes with it what %s had:\nbefore %s\nafter %s", program, another, before[another], after)
			}
		}
		s.kubectl("delete", "namespace", program+"-system")
	}
	s.kubectl("delete", "crd/icecreams.controller.nicoleh.io")
}

// Two releases work in one namespace each. One of them installs nothing, and may do nothing, outside of
// it. Each has names of its own, so they are in nobody's way.
func helmOneNamespace(s site) {
	const kinds = "clusterroles,clusterrolebindings,crd,validatingadmissionpolicies,validatingadmissionpolicybindings,flowschemas"
	s.helm("install", "blue", chart, "-n", "blue", "--create-namespace", "--wait", "--timeout=2m", "--set=namespace=blue")
	s.isRestricted("blue", "blue-k8s-controller")
	before := s.kubectl("get", kinds, "-o=name")
	s.helm("install", "ice", chart, "-n", "team", "--create-namespace", "--wait", "--timeout=2m",
		"--set=namespace=team,icecream.crd.install=false,icecream.aggregate=false,metrics.enabled=false,policies.create=false,flowSchema.create=false")
	s.runs("blue", "blue-k8s-controller", 2)
	s.runs("team", "ice-k8s-controller", 2)
	if after := s.kubectl("get", kinds, "-o=name"); after != before {
		s.Errorf("cluster-wide objects:\nbefore %s\nafter %s", before, after)
	}
	account := "system:serviceaccount:team:ice-k8s-controller"
	s.may(true, account, authorizationv1.ResourceAttributes{Namespace: "team", Verb: "create", Group: "apps", Resource: "deployments"})
	s.may(false, account, authorizationv1.ResourceAttributes{Namespace: "default", Verb: "list", Group: "apps", Resource: "deployments"})
	lease := authorizationv1.ResourceAttributes{Namespace: "team", Verb: "get", Group: "coordination.k8s.io", Resource: "leases"}
	lease.Name = "ice-k8s-controller"
	s.may(true, account, lease)
	lease.Name = "another"
	s.may(false, account, lease)
	s.helm("uninstall", "ice", "-n", "team")
	s.helm("uninstall", "blue", "-n", "blue")
	s.kubectl("delete", "namespace/team", "namespace/blue", "crd/icecreams.controller.nicoleh.io")
}

// The token of the ServiceMonitor is good for what the chart's README says: the path /metrics,
// of the API server too, and nothing else.
func helmMetricsReader(s site) {
	s.kubectl("create", "namespace", system)
	rendered := s.helm("template", "k8s-controller", chart, "-n", system, "--set=monitoring.serviceMonitor.enabled=true",
		"--show-only=templates/servicemonitor.yaml", "--show-only=templates/rbac-metrics-reader.yaml")
	s.apply(strings.Join(slices.DeleteFunc(strings.Split(rendered, "\n---\n"), ofOperators.MatchString), "\n---\n"))
	secret := "secret/k8s-controller-metrics-reader"
	s.kubectl("wait", "-n", system, "--for=jsonpath={.data.token}", secret)
	token, err := base64.StdEncoding.DecodeString(s.get("-n", system, secret, "{.data.token}"))
	if err != nil {
		s.Fatal(err)
	}
	nobodys := strings.TrimSpace(s.kubectl("create", "token", "default", "-n", system))
	want, got := s.rules(nobodys), s.rules(string(token))
	want.NonResourceRules = append(want.NonResourceRules, authorizationv1.NonResourceRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}})
	if diff := cmp.Diff(want, got, cmpopts.SortSlices(func(a, b any) bool { return fmt.Sprint(a) < fmt.Sprint(b) })); diff != "" {
		s.Errorf("what an account without a role can, with /metrics (-), and the reader (+):\n%s", diff)
	}
	if _, err := s.as(string(token)).CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(s.Context()); err != nil {
		s.Errorf("the API server's /metrics: %v", err)
	}
	s.kubectl("delete", "clusterrole,clusterrolebinding", "k8s-controller-metrics-reader")
	s.kubectl("delete", "namespace", system)
}

// as returns a client with a token.
func (s site) as(token string) kubernetes.Interface {
	s.Helper()
	config := rest.AnonymousClientConfig(s.cluster.RESTConfig())
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		s.Fatal(err)
	}
	return client
}

// rules are what the API server allows a token in the system's namespace.
func (s site) rules(token string) authorizationv1.SubjectRulesReviewStatus {
	s.Helper()
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: system}}
	answer, err := s.as(token).AuthorizationV1().SelfSubjectRulesReviews().Create(s.Context(), review, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return answer.Status
}

// labelled returns the objects of all kinds that the chart has, except definitions, with a label.
func (s site) labelled(label string) string {
	s.Helper()
	const kinds = "all,pdb,netpol,sa,roles,rolebindings,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,flowschemas"
	return s.kubectl("get", kinds, "-A", "-o=name", "-l="+label)
}

// nothingIsLeft requires that the Icecream controller's objects are gone.
func (s site) nothingIsLeft() {
	s.Helper()
	if left := s.labelled("app.kubernetes.io/name=k8s-controller"); left != "" {
		s.Errorf("what is left:\n%s", left)
	}
}

// programs returns the names of the programs beside the Icecream controller.
func (s site) programs() (names []string) {
	s.Helper()
	manifests, err := filepath.Glob(apps + "/*/install.yaml")
	if err != nil {
		s.Fatal(err)
	}
	for _, file := range manifests {
		names = append(names, filepath.Base(filepath.Dir(file)))
	}
	return names
}

// agentsRun waits for all Pods of all DaemonSets, of which each node has one.
func (s site) agentsRun() {
	s.Helper()
	nodes := len(strings.Fields(s.get("nodes", "{.items[*].metadata.name}")))
	for agent := range strings.FieldsSeq(s.get("daemonsets", "-A", "{range .items[*]}{.metadata.namespace}/{.metadata.name} {end}")) {
		namespace, name, _ := strings.Cut(agent, "/")
		s.kubectl("rollout", "status", "-n", namespace, "daemonset/"+name, "--timeout=2m")
		s.is(strconv.Itoa(nodes), "-n", namespace, "daemonset/"+name, "{.status.numberAvailable}")
	}
}

// users checks what the roles view, edit and admin of a namespace let people do.
func (s site) users() {
	s.Helper()
	s.kubectl("create", "namespace", "people")
	for _, role := range []string{"view", "edit", "admin"} {
		s.kubectl("create", "rolebinding", role, "-n=people", "--clusterrole="+role, "--user="+role)
	}
	for user, writes := range map[string]bool{"view": false, "edit": true, "admin": true} {
		may := func(want bool, subresource string, verbs ...string) {
			for _, verb := range verbs {
				s.may(want, user, authorizationv1.ResourceAttributes{Namespace: "people", Verb: verb, Group: "controller.nicoleh.io", Resource: "icecreams", Subresource: subresource})
			}
		}
		may(true, "", "get", "list", "watch")
		may(writes, "", "create", "update", "patch", "delete", "deletecollection")
		may(true, "status", "get")
		may(false, "status", "update", "patch")
		may(false, "finalizers", "update")
		may(true, "scale", "get")
		may(writes, "scale", "update", "patch")
		s.may(false, user, authorizationv1.ResourceAttributes{Namespace: "default", Verb: "get", Group: "controller.nicoleh.io", Resource: "icecreams"})
	}
	s.kubectl("delete", "namespace", "people")
}

// runs waits for the replicas of a Deployment to be there, on a node each.
func (s site) runs(namespace, name string, replicas int) {
	s.Helper()
	s.kubectl("rollout", "status", "-n", namespace, "deployment/"+name, "--timeout=2m")
	nodes := map[string]bool{}
	for node := range strings.FieldsSeq(s.kubectl("get", "pods", "-n", namespace, "-o=go-template={{range .items}}{{if not .metadata.deletionTimestamp}}{{.spec.nodeName}} {{end}}{{end}}")) {
		nodes[node] = true
	}
	if len(nodes) != replicas {
		s.Errorf("%s runs on %d nodes, want %d", name, len(nodes), replicas)
	}
}

// may waits for the API server to say that somebody may do something, or may not:
// new roles take a moment.
func (s site) may(want bool, user string, what authorizationv1.ResourceAttributes) {
	s.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &what}}
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		answer, err := s.client.AuthorizationV1().SubjectAccessReviews().Create(s.Context(), review, metav1.CreateOptions{})
		if err != nil {
			s.Fatal(err)
		}
		if answer.Status.Allowed == want {
			return
		}
	}
	s.Errorf("%s may %+v: %t, want %t", user, what, !want, want)
}

// isRestricted waits for the API server to refuse what a service account may do by its
// roles alone: new policies take a second.
func (s site) isRestricted(namespace, account string) {
	s.Helper()
	var err error
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		var complaints strings.Builder
		attempt := s.command(s.cluster.Kubectl(), "create", "deployment", "theirs", "--image=registry.example.com/theirs", "--dry-run=server", "-n="+namespace, "--as=system:serviceaccount:"+namespace+":"+account)
		attempt.Stderr = &complaints
		if err = attempt.Run(); err != nil && strings.Contains(complaints.String(), "may only write Deployments that an Icecream controls") {
			return
		}
	}
	s.Errorf("a Deployment of nobody's is not refused to %s in %s: %v", account, namespace, err)
}

// is compares what the JSONPath, which is the last argument, leads to.
func (s site) is(want string, what ...string) {
	s.Helper()
	if got := s.get(what...); got != want {
		s.Errorf("%q is %q, want %q", what, got, want)
	}
}

func (s site) get(what ...string) string {
	s.Helper()
	last := len(what) - 1
	return s.kubectl(append(append([]string{"get"}, what[:last]...), "-o=jsonpath="+what[last])...)
}

func (s site) write(dir, name, content string) {
	s.Helper()
	name = filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o600)); err != nil {
		s.Fatal(err)
	}
}

// apply applies a text.
func (s site) apply(manifest string) {
	s.Helper()
	command := s.command(s.cluster.Kubectl(), "apply", "-f", "-")
	command.Stdin = strings.NewReader(manifest)
	s.run(command)
}

func (s site) kubectl(args ...string) string {
	s.Helper()
	return s.run(s.command(s.cluster.Kubectl(), args...))
}

// helm runs the one that go.mod pins.
func (s site) helm(args ...string) string {
	s.Helper()
	return s.run(s.command("go", append([]string{"tool", "helm"}, args...)...))
}

func (s site) command(name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(s.Context(), name, args...)
	home := s.cluster.Dir() // nothing of the user's is read or written
	command.Env = append(os.Environ(), "KUBECONFIG="+s.cluster.Kubeconfig(), "KUBECACHEDIR="+home+"/kubectl",
		"HELM_CACHE_HOME="+home+"/helm", "HELM_CONFIG_HOME="+home+"/helm", "HELM_DATA_HOME="+home+"/helm")
	return command
}

// endOfWatch matches what client-go logs when a command ends its own watch, as --wait does.
var endOfWatch = regexp.MustCompile(`(?m)^.*"Warning: watch ended with error".*context canceled.*$`)

// run fails the test also when there is a warning.
func (s site) run(command *exec.Cmd) string {
	s.Helper()
	var complaints strings.Builder
	command.Stderr = &complaints
	output, err := command.Output()
	if err != nil || strings.Contains(strings.ToLower(endOfWatch.ReplaceAllString(complaints.String(), "")), "warn") {
		s.Fatalf("%q: %v\n%.4000s%.4000s", command.Args, err, output, complaints.String())
	}
	return string(output)
}
