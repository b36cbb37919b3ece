package nodereboot

import (
	"context"
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

// A stolen token writes no events but the controller's, holds no Lease but its, and every write that
// its roles grant is one that a policy restricts.
func TestStolenToken(t *testing.T) {
	t.Parallel()
	s := newNodes(t, -1).NewThief(t)
	s.RequireOwnEvents("nodereboot-controller")
	s.RequireOwnLease()
	s.RequireRestricted()
}

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
		if err := try(tool, set{request.Now: fmt.Sprint(tries)}); !isRefused(err) {
			return fmt.Errorf("a user could grant a reboot: %w", err)
		}
		return nil
	})
	if err := try(operator, set{request.Now: nil}); err != nil {
		t.Fatal(err)
	}

	for _, annotation := range []string{request.Needed, request.Next, request.Now, request.InProgress, request.Granted, request.Failed, request.Since} {
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

	steps := []struct {
		name        string
		client      kubernetes.Interface
		annotations set
		subresource string
		isAllowed   bool
	}{
		{"a detector's own annotation", detector, set{"example.com/problem": "x"}, "status", true},

		{"a tool requests a reboot by the status", tool, set{request.Needed: "y"}, "status", false},
		{"a tool withdraws its request", tool, set{request.Needed: nil}, "", true},
		{"the controller makes up a failure", controller, set{request.Failed: "x"}, "", false},
		{"the agent of another node makes up a failure", others, set{request.Failed: "x"}, "", false},

		{"the controller makes up the agent's reason", controller, set{request.Since: "x"}, "", false},
		{"the agent requests a reboot, and says since when", agent, set{request.Needed: "", request.Since: "x"}, "", true},
		{"a tool hides its reason", tool, set{request.Since: nil}, "", false},
		{"the agent withdraws its request", agent, set{request.Needed: nil, request.Since: nil}, "", true},

		{"a tool requests one again", tool, set{request.Needed: ""}, "", true},
		{"the controller chooses a node", controller, set{request.Next: "x"}, "", true},
		{"a tool hides that", tool, set{request.Next: nil}, "", false},
		{"the controller grants a reboot, and notes that", controller, set{request.Needed: nil, request.Next: nil, request.Now: "x", request.Granted: "x"}, "", true},
		{"a tool takes the permission back", tool, set{request.Now: nil}, "", false},
		{"the agent changes its permission", agent, set{request.Now: "y"}, "", false},
		{"the agent makes up the last one", agent, set{request.Granted: "y"}, "", false},
		{"the agent of another node begins", others, set{request.InProgress: "x"}, "", false},
		{"the controller begins in the agent's place", controller, set{request.InProgress: "x"}, "", false},
		{"the agent begins", agent, set{request.InProgress: "x"}, "", true},
		{"the agent uses its permission up", agent, set{request.Now: nil}, "", true},
		{"a tool changes the record of the work", tool, set{request.InProgress: "y"}, "", false},
		{"a tool removes the record of the work", tool, set{request.InProgress: nil}, "", false},
		{"a detector changes it", detector, set{request.InProgress: "y"}, "status", false},
		{"an operator removes it", operator, set{request.InProgress: nil}, "", true},

		{"the agent records a failure", agent, set{request.Failed: "x"}, "", true},
		{"a tool hides it", tool, set{request.Failed: nil}, "", false},
		{"a detector hides it", detector, set{request.Failed: nil}, "status", false},
		{"the agent begins again", agent, set{request.Failed: nil}, "", true},

		{"an operator grants a reboot until some time", operator, set{request.Now: "x"}, "", true},
		{"a tool gives it back", tool, set{request.Now: nil, request.Needed: ""}, "", false},
		{"the agent of another node gives it back", others, set{request.Now: nil, request.Needed: ""}, "", false},
		{"the agent gives it back", agent, set{request.Now: nil, request.Needed: "2026-07-01T12:00:00Z"}, "", true},
		{"an operator grants a reboot until some time again", operator, set{request.Now: "x", request.Needed: nil}, "", true},
		{"the controller takes it back", controller, set{request.Now: nil, request.Needed: ""}, "", true},
		{"a tool withdraws its request again", tool, set{request.Needed: nil}, "", true},

		{"an operator grants a reboot", operator, set{request.Now: "x"}, "", true},
		{"an operator grants one by the status", operator, set{request.Now: "y"}, "status", true},
		{"an operator takes it back", operator, set{request.Now: nil}, "", true},
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

// A stolen token may move a request for a reboot on as the controller does, and change
// nothing else of a Node.
func TestStolenTokenAndNodes(t *testing.T) {
	t.Parallel()
	s := newNodes(t, 1).NewThief(t)
	s.MayDelete("nodes")
	patch := func(client kubernetes.Interface, patch string, o metav1.PatchOptions) error {
		_, err := client.CoreV1().Nodes().Patch(t.Context(), "node-1", types.MergePatchType, []byte(patch), o)
		return err
	}
	annotations := func(values string) string {
		return `{"metadata":{"annotations":{` + strings.NewReplacer("needed", "controller.nicoleh.io/reboot-needed", "next", "controller.nicoleh.io/reboot-next",
			"now", "controller.nicoleh.io/reboot-now", "granted", "controller.nicoleh.io/reboot-granted", "in-progress", "controller.nicoleh.io/reboot-in-progress", "failed", "controller.nicoleh.io/reboot-failed").Replace(values) + `}}}`
	}
	const (
		asks    = "may not request a reboot, and may remove a request only when it grants it"
		chooses = "may only choose nodes that need a reboot"
		grants  = "may grant a reboot only to a node that needs one and was chosen for it, and may revoke a grant only by requesting the reboot again"
		noted   = "may set reboot-granted only with a grant"
		rest    = "may only change its own annotations of a Node"
	)
	refused := func(when string, attempts map[string]string) {
		t.Helper()
		for text, words := range attempts {
			t.Run(when+" "+text, func(t *testing.T) {
				s := s.In(t)
				s.RequireRefused("nodes", words, func(context.Context) error { return patch(s.Kube, text, lab.TryPatch) })
				lab.RequireAllowed(t, patch(s.Lab.Kube, text, lab.TryPatch))
			})
		}
	}
	// Another policy refuses some of these to everybody. This one must not rely on it.
	lab.Kubectl(t, s.Lab, "delete", "validatingadmissionpolicybinding", "nodereboot-annotations")
	lab.Eventually(t, "the other policy is gone", func() error {
		if err := patch(s.Kube, annotations(`"failed":"x"`), lab.TryPatch); err == nil || !strings.Contains(err.Error(), rest) {
			return fmt.Errorf("it is not: %w", err)
		}
		return nil
	})
	refused("always", map[string]string{
		`{"spec":{"unschedulable":true}}`:                                                                rest,
		`{"spec":{"taints":[{"key":"theirs","effect":"NoExecute"}]}}`:                                    rest,
		`{"metadata":{"labels":{"pool":"theirs"}}}`:                                                      rest,
		`{"metadata":{"labels":{"kubernetes.io/hostname":null}}}`:                                        rest,
		`{"metadata":{"finalizers":["example.com/stay"]}}`:                                               rest,
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"y"}]}}`: rest,
		annotations(`"example.com/other":"x"`):                                                           rest,
		annotations(`"k8s.ovn.org/node-subnets":"x"`):                                                    rest,
		annotations(`"in-progress":"x"`):                                                                 rest,
		annotations(`"failed":"x"`):                                                                      rest,
		annotations(`"needed":""`):                                                                       asks,
		annotations(`"next":"x"`):                                                                        chooses,
		annotations(`"granted":"x"`):                                                                     noted,
		annotations(`"now":"x"`):                                                                         grants,
	})

	lab.RequireAllowed(t, patch(s.Lab.Kube, annotations(`"needed":""`), metav1.PatchOptions{}))
	refused("needed", map[string]string{
		annotations(`"needed":null`):            asks,
		annotations(`"needed":"x"`):             asks,
		annotations(`"needed":null,"now":"x"`):  grants,
		annotations(`"needed":null,"next":"x"`): asks,
	})
	lab.RequireAllowed(t, patch(s.Kube, annotations(`"next":"x"`), metav1.PatchOptions{}))
	refused("chosen", map[string]string{
		annotations(`"needed":null,"next":null`): asks,
		annotations(`"now":"x"`):                 grants,
		annotations(`"next":null,"now":"x"`):     grants,
	})
	lab.RequireAllowed(t, patch(s.Kube, annotations(`"next":null`), lab.TryPatch)) // passed over
	lab.RequireAllowed(t, patch(s.Kube, annotations(`"needed":null,"next":null,"now":"x","granted":"x"`), metav1.PatchOptions{}))
	refused("granted", map[string]string{
		annotations(`"now":null`):                              grants,
		annotations(`"now":"y"`):                               grants,
		annotations(`"granted":null`):                          noted,
		annotations(`"granted":"y"`):                           noted,
		annotations(`"needed":""`):                             asks,
		annotations(`"now":"y","needed":""`):                   asks,
		annotations(`"now":null,"needed":"x"`):                 asks,
		annotations(`"now":null,"needed":"","granted":null`):   noted,
		annotations(`"now":null,"needed":"","next":"x"`):       chooses,
		annotations(`"now":null,"needed":"","in-progress":""`): rest,
	})
	lab.RequireAllowed(t, patch(s.Kube, annotations(`"now":null,"needed":""`), lab.TryPatch)) // taken back
	lab.RequireAllowed(t, patch(s.Lab.Kube, annotations(`"needed":"x"`), metav1.PatchOptions{}))
	refused("granted, and needed again", map[string]string{
		annotations(`"now":null,"needed":null`): asks,
		annotations(`"now":null,"needed":""`):   asks,
	})
	lab.RequireAllowed(t, patch(s.Kube, annotations(`"now":null`), lab.TryPatch)) // taken back
}
