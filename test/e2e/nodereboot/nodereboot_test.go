package nodereboot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/test/lab"
)

const (
	agentNamespace = "nodereboot-agent"
	agentName      = "nodereboot-agent"
)

// newNodes boots a cluster with so many nodes, each with a Pod of the agents' DaemonSet. The
// controller's own Pods, which do nothing and would hold drains up, are gone.
func newNodes(t *testing.T, nodes int) *lab.Lab {
	t.Helper()
	l := suite.NewLab(t, lab.Options{Nodes: nodes})
	lab.Kubectl(t, l, "scale", "deployment/nodereboot", "--namespace=nodereboot-system", "--replicas=0")
	return l
}

// machine is a node with its agent, which is a process.
type machine struct {
	t        *testing.T
	lab      *lab.Lab
	node     string
	agent    *lab.Controller
	boot     string // the file of the boot ID
	commands string // the file to which the reboot command adds a line
}

func newMachine(t *testing.T, l *lab.Lab, node string, flags ...string) *machine {
	t.Helper()
	binary := suite.Path(t, "./apps/nodereboot/reboot-agent")
	dir := t.TempDir()
	m := &machine{t: t, lab: l, node: node, boot: filepath.Join(dir, "boot_id"), commands: filepath.Join(dir, "commands")}
	m.write(m.boot, "boot-1\n")
	script := filepath.Join(dir, "reboot")
	m.write(script, "#!/bin/sh\necho rebooting >>"+m.commands+"\n")
	if err := os.Chmod(script, 0o700); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	m.write(kubeconfig, fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c, user: a}}],
		clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}], users: [{name: a, user: {token: %q}}]}`, l.RESTConfig().Host, tokenOf(t, l, node)))
	m.agent = l.NewProgram(binary, append([]string{
		"-kubeconfig=" + kubeconfig, "-node-name=" + node, "-boot-id-file=" + m.boot,
		"-sentinel-file=" + filepath.Join(dir, "reboot-required"), "-look-every=200ms", "-reboot-command=" + script, "-drain-force",
	}, flags...)...)
	return m
}

// tokenOf returns the token that the kubelet would mount into the agent's Pod on that
// node.
func tokenOf(t *testing.T, l *lab.Lab, node string) string {
	t.Helper()
	pod := ""
	lab.Eventually(t, "there is an agent's Pod on "+node, func() (err error) {
		pod, err = l.TryKubectl(t.Context(), "", "get", "pods", "-n="+agentNamespace, "--field-selector=spec.nodeName="+node, "-o=jsonpath={.items[0].metadata.name}")
		return err
	})
	return newToken(t, l, "--bound-object-kind=Pod", "--bound-object-name="+pod)
}

// newToken returns a new token of the agents' account.
func newToken(t *testing.T, l *lab.Lab, flags ...string) string {
	t.Helper()
	return strings.TrimSpace(lab.Kubectl(t, l, append([]string{"create", "token", agentName, "-n=" + agentNamespace}, flags...)...))
}

func (m *machine) write(path, content string) {
	m.t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) get() *corev1.Node {
	m.t.Helper()
	node, err := m.lab.Kube.CoreV1().Nodes().Get(m.t.Context(), m.node, metav1.GetOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	return node
}

func (m *machine) patch(patch string) {
	m.t.Helper()
	if _, err := m.lab.Kube.CoreV1().Nodes().Patch(m.t.Context(), m.node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) ask() {
	m.t.Helper()
	m.patch(`{"metadata":{"annotations":{"` + request.Needed + `":""}}}`)
}

// reboots returns how many times the reboot command was run.
func (m *machine) reboots() int {
	content, err := os.ReadFile(m.commands)
	if err != nil {
		return 0
	}
	return strings.Count(string(content), "\n")
}

// pod puts a Pod onto the node.
func (m *machine) pod(labels map[string]string) {
	m.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "on-" + m.node, Namespace: "default", Labels: labels},
		Spec:       corev1.PodSpec{NodeName: m.node, Containers: []corev1.Container{{Name: "c", Image: "image"}}},
	}
	if _, err := m.lab.Kube.CoreV1().Pods("default").Create(m.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		m.t.Fatal(err)
	}
}

// isDone returns nil if no reboot is requested, granted or in progress.
func (m *machine) isDone() error {
	node := request.Read(m.get())
	if node.IsNeeded() || node.Stage() != request.NoGrant {
		return fmt.Errorf("its annotations are %v", node.Annotations)
	}
	return nil
}

// goDown waits for the reboot command, which comes after the node's Pods have been evicted, and
// does what a reboot would do: the boot ID changes, and the agent is started again.
func (m *machine) goDown() {
	m.t.Helper()
	lab.Eventually(m.t, m.node+" runs the reboot command", func() error {
		if m.reboots() == 0 {
			return fmt.Errorf("the command was not run, and its annotations are %v", m.get().Annotations)
		}
		return nil
	})
	if _, err := m.lab.Kube.CoreV1().Pods("default").Get(m.t.Context(), "on-"+m.node, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		m.t.Errorf("%s goes down with its Pod: %v", m.node, err)
	}
	m.agent.Kill(m.t)
	m.write(m.boot, fmt.Sprintf("boot-%d\n", 1+m.reboots()))
	m.agent.Start(m.t)
}

// protect creates a policy that lets nobody choose this node.
func protect(t *testing.T, l *lab.Lab, node string) {
	t.Helper()
	policy := fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: protected},
  spec: {matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [nodes], resourceNames: [%s]}]},
  validations: [{expression: "!has(object.metadata.annotations) || !('%s' in object.metadata.annotations)", message: hands off}]}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: protected},
  spec: {policyName: protected, validationActions: [Deny]}}`, node, request.Granted)
	if _, err := l.TryKubectl(t.Context(), policy, "apply", "--filename=-"); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, "the policy protects "+node, func() error {
		_, err := l.TryKubectl(t.Context(), "", "annotate", "node", node, "--dry-run=server", request.Granted+"=")
		if err == nil || !strings.Contains(err.Error(), "hands off") {
			return fmt.Errorf("it does not: %w", err)
		}
		return nil
	})
}

// Nodes are drained and rebooted, and left as they were. Their agents are killed while the
// system goes down. The first node cannot be written, which is told and holds up nobody.
func TestNodeReboot(t *testing.T) {
	t.Parallel()
	l := newNodes(t, 3)
	protect(t, l, "node-1")
	protected, fresh, cordoned := newMachine(t, l, "node-1"), newMachine(t, l, "node-2"), newMachine(t, l, "node-3")
	protected.ask()
	protected.agent.StartForTest(t)
	l.StartController(t, "-max-unavailable=2")
	cordoned.patch(`{"spec":{"unschedulable":true}}`)
	machines := []*machine{fresh, cordoned}
	for _, m := range machines {
		m.patch(`{"metadata":{"annotations":{"example.com/kept":"x"}}}`)
		m.pod(nil)
		m.ask()
		m.agent.StartForTest(t)
	}
	for _, m := range machines {
		m.goDown()
		lab.Eventually(t, "the reboot is done", m.isDone)
	}
	for _, m := range machines {
		n := m.get()
		if m.reboots() != 1 || n.Spec.Unschedulable != (m == cordoned) || n.Annotations["example.com/kept"] != "x" {
			t.Errorf("%s was rebooted %d times, is cordoned: %t, and has the annotations %v", m.node, m.reboots(), n.Spec.Unschedulable, n.Annotations)
		}
	}
	told := lab.Kubectl(t, l, "get", "events", "--field-selector=involvedObject.name=node-1,reason=RebootWaiting")
	if !lab.ContainsAll(told, "(Refused)", "hands off") {
		t.Errorf("about the protected node, the events are\n%s", told)
	}
}

// A PodDisruptionBudget is respected until the drain times out. Then the node is
// uncordoned, and an event says why. The reboot is requested again for later.
func TestNodeRebootRespectsDisruptionBudgets(t *testing.T) {
	t.Parallel()
	l := newNodes(t, 1)
	l.StartController(t)
	m := newMachine(t, l, "node-1", "-drain-timeout=8s", "-retry-after=10s")
	m.pod(map[string]string{"app": "kept"})
	lab.Kubectl(t, l, "create", "poddisruptionbudget", "kept", "--selector=app=kept", "--min-available=1")
	m.ask()
	m.agent.StartForTest(t)
	lab.Eventually(t, "an event says what was in the way", func() error {
		said, err := l.TryKubectl(t.Context(), "", "get", "events", "--field-selector=involvedObject.kind=Node,involvedObject.name=node-1,reason=RebootGivenUp")
		if err == nil && !strings.Contains(said, "disruption budget") {
			return fmt.Errorf("the events are %s", said)
		}
		return err
	})
	if _, err := l.Kube.CoreV1().Pods("default").Get(t.Context(), "on-node-1", metav1.GetOptions{}); err != nil || m.reboots() > 0 || m.get().Spec.Unschedulable {
		t.Errorf("rebooted %d times, cordoned: %t, and the Pod: %v", m.reboots(), m.get().Spec.Unschedulable, err)
	}
	lab.Kubectl(t, l, "delete", "poddisruptionbudget", "kept")
	m.goDown()
	lab.Eventually(t, "the reboot is done", m.isDone)
	if m.reboots() != 1 || m.get().Spec.Unschedulable {
		t.Errorf("rebooted %d times, cordoned: %t", m.reboots(), m.get().Spec.Unschedulable)
	}
}

// The agent's token is good only for its own Node, and there only for what the agent
// does.
func TestNodeRebootAgentIsKeptToItsNode(t *testing.T) {
	t.Parallel()
	l := newNodes(t, 2)
	agent, stray := l.ClientOf(t, tokenOf(t, l, "node-1")), l.ClientOf(t, newToken(t, l))
	annotate := func(name, value string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, name, value)
	}
	try := func(client kubernetes.Interface, node, patch string) error {
		_, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	requireForbidden := func(what string, try func() error) { // Each policy takes effect some time after it was created.
		t.Helper()
		lab.Eventually(t, what+" is forbidden", func() error {
			if err := try(); !apierrors.IsForbidden(err) {
				return fmt.Errorf("it is not: %w", err)
			}
			return nil
		})
	}
	requireForbidden("another node's record", func() error { return try(agent, "node-2", annotate(request.Agent, "x")) })
	const (
		others = "may not write to other nodes"
		rest   = "may only change its own annotations and the cordon of its Node"
	)
	for _, tt := range []struct {
		name   string
		client kubernetes.Interface
		node   string
		patch  string
		want   string // part of the refusal; empty if allowed
	}{
		{"another node's record", agent, "node-2", annotate(request.Agent, "x"), others},
		{"another node's cordon", agent, "node-2", `{"spec":{"unschedulable":true}}`, others},
		{"a token of no node", stray, "node-1", annotate(request.Agent, "x"), others},
		{"someone else's annotation", agent, "node-1", annotate("k8s.ovn.org/x", "x"), rest},
		{"a label", agent, "node-1", `{"metadata":{"labels":{"example.com/x":"x"}}}`, rest},
		{"an owner", agent, "node-1", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gone","uid":"gone"}]}}`, "is forbidden"},
		{"its place at the cloud", agent, "node-1", `{"spec":{"providerID":"x"}}`, rest},
		{"a taint", agent, "node-1", `{"spec":{"taints":[{"key":"example.com/x","effect":"NoExecute"}]}}`, rest},
		{"its own record", agent, "node-1", annotate(request.Agent, "x"), ""},
		{"its own cordon", agent, "node-1", `{"spec":{"unschedulable":true}}`, ""},
	} {
		err := try(tt.client, tt.node, tt.patch)
		if tt.want == "" && err != nil {
			t.Errorf("%s: refused: %v", tt.name, err)
		}
		// If several policies refuse it, any of them may come first.
		if tt.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tt.want) && !strings.Contains(err.Error(), annotationsRefused)) {
			t.Errorf("%s: %v, want it to be refused as %q", tt.name, err, tt.want)
		}
	}
	say := func(about, reporter string) error {
		_, err := agent.CoreV1().Events(metav1.NamespaceDefault).Create(t.Context(), &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "said-"}, Type: corev1.EventTypeNormal, Reason: "Said",
			ReportingController: reporter, InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: about},
		}, metav1.CreateOptions{})
		return err
	}
	if err := say("node-1", "reboot-agent"); err != nil {
		t.Errorf("an event about its own Node: %v", err)
	}
	requireForbidden("an event about another Node", func() error { return say("node-2", "reboot-agent") })
	requireForbidden("an event in the name of another component", func() error { return say("node-1", "kubelet") })
	if err := agent.CoreV1().Nodes().Delete(t.Context(), "node-1", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deleting its own node: %v", err)
	}
}

// Blocking Pods take a permission that the controller does not have otherwise: it waits for that,
// and says what gives it.
func TestNodeRebootBlockingPods(t *testing.T) {
	t.Parallel()
	l := newNodes(t, 1)
	if err := l.LearnPrivileges(); err != nil { // before one is missing
		t.Fatal(err)
	}
	c := l.StartController(t, "-blocking-pods=job=training")
	logs := func(words ...string) {
		t.Helper()
		lab.Eventually(t, fmt.Sprintf("the log says %q", words), func() error {
			if log := c.Log(); !lab.ContainsAll(log, words...) {
				return fmt.Errorf("the log is\n%s", log)
			}
			return nil
		})
	}
	const (
		isStarted = `"Started" logger="nodereboot"`
		bind      = "kubectl create clusterrolebinding nodereboot-blocking-pods --clusterrole=nodereboot-blocking-pods --serviceaccount=nodereboot-system:nodereboot"
	)
	logs("permission is missing", bind)
	if strings.Contains(c.Log(), isStarted) {
		t.Errorf("it does not wait:\n%s", c.Log())
	}
	lab.Kubectl(t, l, strings.Fields(bind)[1:]...)
	logs(isStarted)
}

// As install.yaml installs it, it chooses a node. Only those may read its metrics who have the
// permission.
func TestInstall(t *testing.T) {
	t.Parallel()
	l := suite.NewLab(t, lab.Options{})
	pods := l.RunPods(t)
	pods.RequireRolledOut(t)
	lab.Kubectl(t, l, "annotate", "node", "node-1", request.Needed+"=")
	pods.RequireMetrics(t, `nodereboot_needed_seconds{node="node-1"`)
}
