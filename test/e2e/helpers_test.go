package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/test/lab"
)

// icecreamYAML returns the manifest of an Icecream with these fields in its spec.
func icecreamYAML(name string, fields ...string) string {
	return fmt.Sprintf("apiVersion: controller.nicoleh.io/v1alpha1\nkind: Icecream\nmetadata: {name: %s}\nspec: {%s}\n", name, strings.Join(fields, ", "))
}

// eventuallyHasDeployment waits until there is a Deployment of that name, in whatever
// state.
func eventuallyHasDeployment(t *testing.T, n *lab.Namespace, name string) {
	t.Helper()
	n.Eventually(t, fmt.Sprintf("there is a Deployment %q", name), func(ctx context.Context) error {
		_, err := n.Deployments().Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

// requestsOf returns the controller's requests in the namespace.
func requestsOf(t *testing.T, n *lab.Namespace) lab.Requests {
	t.Helper()
	return n.Requests(t).By(n.Controller.User)
}

// isAccepted reports whether a request succeeded.
func isAccepted(e *cluster.AuditEvent) bool { return e.Code < 400 }

// eventuallyEvent waits until an Icecream has an event of that reason whose message contains these words. Events are
// sent after the status.
func eventuallyEvent(t *testing.T, n *lab.Namespace, name, reason, words string) {
	t.Helper()
	n.Eventually(t, fmt.Sprintf("there is an event %s: %s", reason, words), func(context.Context) error {
		all := n.Events(t, name)
		if !slices.ContainsFunc(all, func(e eventsv1.Event) bool { return e.Reason == reason && strings.Contains(e.Note, words) }) {
			return fmt.Errorf("it is not among %d events", len(all))
		}
		return nil
	})
}

// patchIcecream applies a merge patch to an Icecream.
func patchIcecream(t *testing.T, n *lab.Namespace, name, patch string) {
	t.Helper()
	if _, err := n.Icecreams().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
