package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubeinformers "k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
	"nicoleh.io/k8s-controller/test/lab"
)

const (
	agentNamespace = "k8s-controller-reboot-agent"
	agentName      = "k8s-controller-reboot-agent"
)

// newNodes boots a cluster with so many nodes, each with a Pod of the DaemonSet in
// artifacts/, and starts the controller with that budget.
func newNodes(t *testing.T, nodes int, budget string, flags ...string) *lab.Lab {
	t.Helper()
	l := newIdleNodes(t, nodes)
	l.StartController(t, append([]string{"-controllers=nodereboot", "-nodereboot-max-unavailable=" + budget}, flags...)...)
	return l
}

// newIdleNodes does the same without the controller.
func newIdleNodes(t *testing.T, nodes int) *lab.Lab {
	t.Helper()
	l := NewLab(t, lab.Options{Nodes: nodes})
	for _, artifact := range []string{"artifacts/rbac-nodereboot.yaml", "artifacts/reboot-agent.yaml"} {
		if _, err := l.TryKubectl(t.Context(), "", "apply", "-f", l.Path(artifact)); err != nil {
			t.Fatal(err)
		}
	}
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
	binary := binaries.Path(t, "./cmd/reboot-agent")
	dir := t.TempDir()
	m := &machine{t: t, lab: l, node: node, boot: filepath.Join(dir, "boot_id"), commands: filepath.Join(dir, "commands")}
	m.write(m.boot, "boot-1\n")
	script := filepath.Join(dir, "reboot")
	m.write(script, "#!/bin/sh\necho rebooting >>"+m.commands+"\n")
	if err := os.Chmod(script, 0o700); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: l.RESTConfig().Host, InsecureSkipTLSVerify: true}
	config.AuthInfos["a"] = &clientcmdapi.AuthInfo{Token: tokenOf(t, l, node)}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "a"}
	config.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	m.agent = l.NewProgram(binary, append([]string{
		"-kubeconfig=" + kubeconfig, "-node-name=" + node, "-lease-namespace=" + agentNamespace, "-boot-id-file=" + m.boot,
		"-sentinel-file=" + filepath.Join(dir, "reboot-required"), "-look-every=200ms", "-reboot-command=" + script, "-drain-force",
	}, flags...)...)
	return m
}

// tokenOf returns the token that the kubelet would mount into the agent's Pod on that
// node.
func tokenOf(t *testing.T, l *lab.Lab, node string) string {
	t.Helper()
	token := ""
	eventually(t, "there is an agent's Pod on "+node, func() error {
		pods, err := l.Kube.CoreV1().Pods(agentNamespace).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		if err != nil || len(pods.Items) == 0 {
			return fmt.Errorf("there is none: %w", err)
		}
		issued, err := l.Kube.CoreV1().ServiceAccounts(agentNamespace).CreateToken(t.Context(), agentName, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
				Kind: "Pod", APIVersion: "v1", Name: pods.Items[0].Name, UID: pods.Items[0].UID,
			}},
		}, metav1.CreateOptions{})
		token = issued.Status.Token
		return err
	})
	return token
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
	node := m.get()
	if request.IsNeeded(node) || request.IsGranted(node) {
		return fmt.Errorf("its annotations are %v", node.Annotations)
	}
	return nil
}

// goDown waits for the reboot command, which comes after the node's Pods have been evicted, and
// does what a reboot would do: the boot ID changes, and the agent is started again.
func (m *machine) goDown() {
	m.t.Helper()
	eventually(m.t, m.node+" runs the reboot command", func() error {
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

// Nodes are drained and rebooted, and left as they were. Their agents are killed while the
// system goes down.
func TestNodeReboot(t *testing.T) {
	t.Parallel()
	l := newNodes(t, 2, "2")
	fresh, cordoned := newMachine(t, l, "node-1"), newMachine(t, l, "node-2")
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
		eventually(t, "the reboot is done", m.isDone)
	}
	for _, m := range machines {
		n := m.get()
		if m.reboots() != 1 || n.Spec.Unschedulable != (m == cordoned) || n.Annotations["example.com/kept"] != "x" {
			t.Errorf("%s was rebooted %d times, is cordoned: %t, and has the annotations %v", m.node, m.reboots(), n.Spec.Unschedulable, n.Annotations)
		}
	}
	requireAgentsLeastPrivilege(t, l)
}

// requireBudget fails the test if at any time more nodes than that were rebooting or
// allowed to.
func requireBudget(t *testing.T, l *lab.Lab, most int) {
	t.Helper()
	granted, worst := map[string]bool{}, 0
	look := func(node *corev1.Node) {
		granted[node.Name] = request.IsGranted(node)
		n := 0
		for _, isGranted := range granted {
			if isGranted {
				n++
			}
		}
		worst = max(worst, n)
	}
	factory := kubeinformers.NewSharedInformerFactory(l.Kube, 0)
	if _, err := factory.Core().V1().Nodes().TypedInformer().AddTypedEventHandler(coreinformers.NodeHandlerFuncs{
		AddFunc:    look,
		UpdateFunc: func(_, node *corev1.Node) { look(node) },
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
		if worst == 0 || worst > most {
			t.Errorf("of at most %d nodes %d were allowed to reboot at a time", most, worst)
		}
	})
}

// requireAgentsLeastPrivilege fails the test if an agent was refused something that it
// needs, or if its role grants something that no agent has used.
func requireAgentsLeastPrivilege(t *testing.T, l *lab.Lab) {
	t.Helper()
	role, err := l.Kube.RbacV1().ClusterRoles().Get(t.Context(), agentName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	requests := l.Requests(t).By("system:serviceaccount:" + agentNamespace + ":" + agentName).Where(func(e *cluster.AuditEvent) bool {
		return !strings.Contains(e.RequestURI, "dryRun=") // the agent tries what it must not do
	})
	for _, rule := range role.Rules {
		for _, verb := range rule.Verbs {
			if len(requests.Resource(rule.Resources[0]).Where(func(e *cluster.AuditEvent) bool { return e.Verb == verb })) == 0 {
				t.Errorf("the role allows what the agent does not need: %s %s", verb, rule.Resources[0])
			}
		}
	}
	if refused := requests.Code(http.StatusForbidden); len(refused) > 0 {
		t.Errorf("the agent is not allowed what it needs: %s", refused)
	}
}

// A PodDisruptionBudget is respected until the drain times out. Then the node is
// uncordoned, an event says why, and only then is it another node's turn. The reboot is
// requested again for later.
func TestNodeRebootRespectsDisruptionBudgets(t *testing.T) {
	t.Parallel()
	l := newNodes(t, 2, "1")
	requireBudget(t, l, 1)
	blocked := newMachine(t, l, "node-1", "-drain-timeout=8s", "-retry-after=5s")
	free := newMachine(t, l, "node-2")
	labels := map[string]string{"app": "kept"}
	blocked.pod(labels)
	budgets := l.Kube.PolicyV1().PodDisruptionBudgets("default")
	if _, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "kept"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptrTo(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	blocked.ask()
	blocked.agent.StartForTest(t)
	eventually(t, "node-1 waits for its Pod", func() error {
		if !blocked.get().Spec.Unschedulable {
			return errors.New("it is not cordoned")
		}
		return nil
	})
	free.ask()
	free.agent.StartForTest(t)
	free.goDown()
	eventually(t, "node-2 is done", free.isDone)
	lease, err := l.Kube.CoordinationV1().Leases(agentNamespace).Get(t.Context(), "node-2", metav1.GetOptions{})
	if err != nil || len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != free.get().UID {
		t.Errorf("the Lease of node-2 does not go with it: %v, %v", lease, err)
	}
	if blocked.reboots() > 0 || free.reboots() != 1 {
		t.Errorf("rebooted: node-1 %d times, node-2 %d times", blocked.reboots(), free.reboots())
	}
	if _, err := l.Kube.CoreV1().Pods("default").Get(t.Context(), "on-node-1", metav1.GetOptions{}); err != nil {
		t.Errorf("the Pod: %v", err)
	}

	told, err := l.Kube.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "regarding.kind=Node,regarding.name=node-1,reason=RebootGivenUp"})
	if err != nil || len(told.Items) == 0 || !strings.Contains(told.Items[0].Note, "disruption budget") {
		t.Errorf("no event says what was in the way: %v (%v)", told, err)
	}

	if err := budgets.Delete(t.Context(), "kept", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	blocked.goDown()
	eventually(t, "node-1 is done", blocked.isDone)
	if blocked.reboots() != 1 || blocked.get().Spec.Unschedulable {
		t.Errorf("node-1 was rebooted %d times, cordoned: %t", blocked.reboots(), blocked.get().Spec.Unschedulable)
	}
}

// The agent's token is good only for its own Node, and there only for what the agent
// does.
func TestNodeRebootAgentIsKeptToItsNode(t *testing.T) {
	t.Parallel()
	l := newNodes(t, 2, "0")
	agent := clientOf(t, l, tokenOf(t, l, "node-1"))
	issued, err := l.Kube.CoreV1().ServiceAccounts(agentNamespace).CreateToken(t.Context(), agentName, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stray := clientOf(t, l, issued.Status.Token)
	annotate := func(name, value string) string {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{name: value}}})
		if err != nil {
			t.Fatal(err)
		}
		return string(patch)
	}
	try := func(client kubernetes.Interface, node, patch string) error {
		_, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	// A policy takes effect some time after it was created.
	eventually(t, "the policy is in force", func() error {
		if err := try(agent, "node-2", annotate(request.InProgress, "x")); !apierrors.IsForbidden(err) {
			return fmt.Errorf("another node was patched: %w", err)
		}
		return nil
	})
	for _, tt := range []struct {
		name   string
		client kubernetes.Interface
		node   string
		patch  string
		want   string // part of the refusal; empty if allowed
	}{
		{"another node's record", agent, "node-2", annotate(request.InProgress, "x"), "may not write to other nodes"},
		{"another node's cordon", agent, "node-2", `{"spec":{"unschedulable":true}}`, "may not write to other nodes"},
		{"a token of no node", stray, "node-1", annotate(request.InProgress, "x"), "may not write to other nodes"},
		{"its own permission", agent, "node-1", annotate(request.Now, "x"), "may not grant itself"},
		{"someone else's annotation", agent, "node-1", annotate("k8s.ovn.org/x", "x"), "may only change its own annotations and the cordon of its Node"},
		{"what it tries before it reports", agent, "node-1", annotate("controller.nicoleh.io/try", "x"), "may only change its own annotations and the cordon of its Node"},
		{"a label", agent, "node-1", `{"metadata":{"labels":{"example.com/x":"x"}}}`, "may only change its own annotations and the cordon of its Node"},
		{"an owner", agent, "node-1", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gone","uid":"gone"}]}}`, "is forbidden"},
		{"its place at the cloud", agent, "node-1", `{"spec":{"providerID":"x"}}`, "may only change its own annotations and the cordon of its Node"},
		{"its turn", agent, "node-1", annotate(request.Next, "x"), "may only change its own annotations and the cordon of its Node"},
		{"a taint", agent, "node-1", `{"spec":{"taints":[{"key":"example.com/x","effect":"NoExecute"}]}}`, "may only change its own annotations and the cordon of its Node"},
		{"its own request", agent, "node-1", annotate(request.Needed, ""), ""},
		{"its own reason", agent, "node-1", annotate(request.Since, "x"), ""},
		{"its own failure", agent, "node-1", annotate(request.Failed, "x"), ""},
		{"its own record", agent, "node-1", annotate(request.InProgress, "x"), ""},
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
	requireForbidden := func(what string, try func() error) { // Each policy takes effect some time after it was created.
		t.Helper()
		eventually(t, what+" is forbidden", func() error {
			if err := try(); !apierrors.IsForbidden(err) {
				return fmt.Errorf("it is not: %w", err)
			}
			return nil
		})
	}
	requireForbidden("an event about another Node", func() error { return say("node-2", "reboot-agent") })
	requireForbidden("an event in the name of another component", func() error { return say("node-1", "kubelet") })
	leases := agent.CoordinationV1().Leases(agentNamespace)
	report := func(name string) error {
		_, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	if err := report("node-1"); err != nil {
		t.Errorf("its own Lease: %v", err)
	}
	requireForbidden("another agent's Lease", func() error { return report("node-2") })
	if _, err := leases.Patch(t.Context(), "node-1", types.MergePatchType, []byte(`{"spec":{"holderIdentity":"x"}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("renewing its own Lease: %v", err)
	}
	if err := agent.CoreV1().Nodes().Delete(t.Context(), "node-1", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deleting its own node: %v", err)
	}
}

// An annotation that claims that the node was drained and the command was run does not
// make the agent reboot the node with its Pods. It gives up.
func TestNodeRebootBelievesNoAnnotation(t *testing.T) {
	t.Parallel()
	l := newNodes(t, 1, "1")
	m := newMachine(t, l, "node-1")
	m.pod(nil)
	m.patch(`{"metadata":{"annotations":{"` + request.InProgress + `":"{\"bootID\":\"boot-1\",\"cordoned\":true,\"since\":\"` +
		time.Now().UTC().Format(time.RFC3339) + `\",\"rebooted\":\"` + time.Now().Add(-11*time.Minute).UTC().Format(time.RFC3339) + `\"}"}},"spec":{"unschedulable":true}}`)
	m.agent.StartForTest(t)
	eventually(t, "the reboot is given up", m.isDone)
	if _, hasFailed := m.get().Annotations[request.Failed]; !hasFailed || m.reboots() > 0 || m.get().Spec.Unschedulable {
		t.Errorf("rebooted %d times, cordoned: %t, annotations %v", m.reboots(), m.get().Spec.Unschedulable, m.get().Annotations)
	}
	if _, err := l.Kube.CoreV1().Pods("default").Get(t.Context(), "on-node-1", metav1.GetOptions{}); err != nil {
		t.Errorf("its Pod: %v", err)
	}
}

func ptrTo[T any](v T) *T { return &v }

// Blocking Pods take a permission that the controller does not have otherwise: it waits for that,
// and says what gives it. Then such a Pod holds its node back.
func TestNodeRebootBlockingPods(t *testing.T) {
	t.Parallel()
	l := newIdleNodes(t, 1)
	if err := l.LearnPrivileges(); err != nil { // before one is missing
		t.Fatal(err)
	}
	if _, err := l.TryKubectl(t.Context(), "", "delete", "-f", l.Path("artifacts/rbac-icecream.yaml")); err != nil { // whose roles allow that, too
		t.Fatal(err)
	}
	m := newMachine(t, l, "node-1")
	m.pod(map[string]string{"job": "training"})
	m.ask()
	m.agent.StartForTest(t)
	c := l.StartController(t, "-controllers=nodereboot", "-nodereboot-blocking-pods=job=training")
	const remedy = "kubectl apply -f artifacts/nodereboot-blocking-pods.yaml"
	eventually(t, "the controller says what it waits for", func() error {
		if log := c.Log(); !strings.Contains(log, "permission is missing") || !strings.Contains(log, remedy) {
			return fmt.Errorf("the log is\n%s", log)
		}
		return nil
	})
	if _, err := l.TryKubectl(t.Context(), "", "apply", "-f", l.Path("artifacts/nodereboot-blocking-pods.yaml")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Pod holds its node back", func() error {
		told, err := l.Kube.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "regarding.kind=Node,regarding.name=node-1,reason=RebootWaiting"})
		if err != nil || !slices.ContainsFunc(told.Items, func(e eventsv1.Event) bool { return strings.Contains(e.Note, "PodRuns") }) {
			return fmt.Errorf("the events are %v: %w", told.Items, err)
		}
		return nil
	})
	if m.reboots() > 0 || request.IsGranted(m.get()) {
		t.Errorf("rebooted %d times, and has %v", m.reboots(), m.get().Annotations)
	}
}
