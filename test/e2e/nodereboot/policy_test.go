package nodereboot

import (
	"encoding/json"
	"fmt"
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

// annotationsRefused is part of the refusal of the policy that protects the annotations
// of Nodes.
const annotationsRefused = "may not change controller.nicoleh.io/reboot-"

// userWith returns a client of a user who has these verbs on these resources and no others.
func userWith(t *testing.T, l *lab.Lab, name, verbs, resources string) kubernetes.Interface {
	t.Helper()
	lab.Kubectl(t, l, "create", "clusterrole", name, "--verb="+verbs, "--resource="+resources)
	lab.Kubectl(t, l, "create", "clusterrolebinding", name, "--clusterrole="+name, "--user="+name)
	return l.Impersonate(t, name)
}

// Nobody can decide on reboots by a permission that was given for something else: many
// agents of networks, devices and problem detectors may write the status of all Nodes,
// and with it their annotations.
func TestNodeRebootAnnotationsAreProtected(t *testing.T) {
	t.Parallel()
	l := newNodes(t, 2) // a controller would take back what the test grants in its name
	var (
		detector   = userWith(t, l, "problem-detector", "patch,update", "nodes/status")
		tool       = userWith(t, l, "tool", "patch,create", "nodes,nodes/status")
		operator   = userWith(t, l, "operator", "patch,reboot", "nodes,nodes/status")
		controller = l.Impersonate(t, "system:serviceaccount:nodereboot-system:nodereboot")
		agent      = l.ClientOf(t, tokenOf(t, l, "node-1"))
		others     = l.ClientOf(t, tokenOf(t, l, "node-2"))
	)
	type set map[string]any
	try := func(client kubernetes.Interface, annotations set, subresources ...string) error {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.CoreV1().Nodes().Patch(t.Context(), "node-1", types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
		return err
	}
	isRefused := func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), annotationsRefused)
	}
	tries := 0
	lab.Eventually(t, "the policy is in force", func() error {
		tries++ // a patch that changes nothing is never refused
		if err := try(tool, set{request.Granted: fmt.Sprint(tries)}); !isRefused(err) {
			return fmt.Errorf("a user could grant a reboot: %w", err)
		}
		return nil
	})
	if err := try(operator, set{request.Granted: nil}); err != nil {
		t.Fatal(err)
	}

	for _, annotation := range []string{request.Needed, request.Granted, request.Agent} {
		// Without the policy, a problem detector's permission would be enough.
		if err := try(detector, set{annotation: "x"}, "status"); !isRefused(err) {
			t.Errorf("a detector writes %s: %v", annotation, err)
		}
		isAllowed := annotation == request.Needed
		if err := try(tool, set{annotation: "x"}); isAllowed != (err == nil) || !isAllowed && !isRefused(err) {
			t.Errorf("a tool writes %s: %v", annotation, err)
		}
		_, err := tool.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "born-with-" + strings.TrimPrefix(annotation, "controller.nicoleh.io/"), Annotations: map[string]string{annotation: "x"},
		}}, metav1.CreateOptions{})
		if isAllowed != (err == nil) || !isAllowed && !isRefused(err) {
			t.Errorf("a Node that is created with %s: %v", annotation, err)
		}
	}

	grant, record := request.Encode(request.Grant{ID: 1, BootID: "b"}), request.Encode(request.Record{BootID: "b"})
	steps := []struct {
		name        string
		client      kubernetes.Interface
		annotations set
		subresource string
		isAllowed   bool
	}{
		{"a detector's own annotation", detector, set{"example.com/problem": "x"}, "status", true},

		{"a tool changes its request by the status", tool, set{request.Needed: "y"}, "status", false},
		{"a tool withdraws its request", tool, set{request.Needed: nil}, "", true},
		{"the agent requests a reboot", agent, set{request.Needed: ""}, "", false},
		{"a tool requests one again", tool, set{request.Needed: ""}, "", true},

		{"the agent grants itself a reboot", agent, set{request.Granted: grant}, "", false},
		{"the controller grants it", controller, set{request.Granted: grant}, "", true},
		{"a tool takes the grant back", tool, set{request.Granted: nil}, "", false},
		{"a detector changes the grant", detector, set{request.Granted: "x"}, "status", false},
		{"the agent removes the grant", agent, set{request.Granted: nil}, "", false},

		{"the agent of another node answers", others, set{request.Agent: record}, "", false},
		{"the controller answers in the agent's place", controller, set{request.Agent: record}, "", false},
		{"the agent answers, and removes the request", agent, set{request.Agent: record, request.Needed: nil}, "", true},
		{"a tool changes the record", tool, set{request.Agent: "x"}, "", false},
		{"a detector removes the record", detector, set{request.Agent: nil}, "status", false},

		{"an operator changes all three", operator, set{request.Needed: "x", request.Granted: "x", request.Agent: "x"}, "", true},
		{"an operator removes them by the status", operator, set{request.Needed: nil, request.Granted: nil, request.Agent: nil}, "status", true},
	}
	for _, s := range steps {
		var subresources []string
		if s.subresource != "" {
			subresources = append(subresources, s.subresource)
		}
		err := try(s.client, s.annotations, subresources...)
		if s.isAllowed && err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if !s.isAllowed && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want it to be forbidden", s.name, err)
		}
	}
}

// A stolen token may write grants, and change nothing else of a Node.
func TestStolenTokenAndNodes(t *testing.T) {
	t.Parallel()
	s := newNodes(t, 1).NewThief(t)
	s.RequireKept("nodereboot-controller")
	s.MayDelete("nodes")
	patch := func(client kubernetes.Interface, patch string) error {
		_, err := client.CoreV1().Nodes().Patch(t.Context(), "node-1", types.MergePatchType, []byte(patch), lab.TryPatch)
		return err
	}
	annotation := func(name string) string { return fmt.Sprintf(`{"metadata":{"annotations":{%q:"x"}}}`, name) }
	for _, text := range []string{
		`{"spec":{"unschedulable":true}}`,
		`{"spec":{"taints":[{"key":"theirs","effect":"NoExecute"}]}}`,
		`{"metadata":{"labels":{"pool":"theirs"}}}`,
		`{"metadata":{"labels":{"kubernetes.io/hostname":null}}}`,
		`{"metadata":{"finalizers":["example.com/stay"]}}`,
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"y"}]}}`,
		annotation("k8s.ovn.org/node-subnets"),
		annotation(request.Needed),
	} {
		s.RequireRefusedAlone(text, "nodes", "may only change the annotation "+request.Granted+" of a Node", func(client kubernetes.Interface) error {
			return patch(client, text)
		})
	}
	lab.RequireAllowed(t, patch(s.Kube, annotation(request.Granted)))
}
