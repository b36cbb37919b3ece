package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/test/lab"
)

// icecreamYAML returns the manifest of an Icecream with these fields in its spec.
func icecreamYAML(name string, fields ...string) string {
	return fmt.Sprintf("apiVersion: controller.nicoleh.io/v1alpha1\nkind: Icecream\nmetadata: {name: %s}\nspec: {%s}\n", name, strings.Join(fields, ", "))
}

// edit merges fields, given as JSON, into the spec of an Icecream, as kubectl edit would.
func edit(t *testing.T, n *lab.Namespace, name, fields string) {
	t.Helper()
	n.Kubectl(t, "patch", "icecream", name, "--type=merge", "-p", `{"spec":{`+fields+`}}`)
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

// eventNotes returns the messages of an Icecream's events of that reason. A message that
// was reported several times is repeated as often.
func eventNotes(t *testing.T, n *lab.Namespace, name, reason string) []string {
	t.Helper()
	var found []string
	for _, event := range n.Events(t, name) {
		if event.Reason == reason {
			found = append(found, slices.Repeat([]string{event.Note}, int(event.DeprecatedCount))...)
		}
	}
	return found
}

// eventuallyEvent waits until an Icecream has an event of that reason whose message
// contains these words. Events are sent after the status.
func eventuallyEvent(t *testing.T, n *lab.Namespace, name, reason, words string) {
	t.Helper()
	n.Eventually(t, fmt.Sprintf("there is an event %s: %s", reason, words), func(context.Context) error {
		found := eventNotes(t, n, name, reason)
		if !slices.ContainsFunc(found, func(note string) bool { return strings.Contains(note, words) }) {
			return fmt.Errorf("the events of that reason say %q", found)
		}
		return nil
	})
}

// requireOneWarning waits until an Icecream has an event of that reason whose message
// contains these words, and requires that it is the Icecream's only Warning and was
// reported once.
func requireOneWarning(t *testing.T, n *lab.Namespace, name, reason, words string) {
	t.Helper()
	eventuallyEvent(t, n, name, reason, words)
	var warnings []string
	for _, event := range n.Events(t, name) {
		if event.Type != corev1.EventTypeWarning {
			continue
		}
		if times := int(event.DeprecatedCount); times != 1 {
			t.Errorf("the Warning %q was reported %d times", event.Note, times)
		}
		warnings = append(warnings, event.Reason+": "+event.Note)
	}
	if len(warnings) != 1 {
		t.Errorf("there are %d Warnings, want one: %q", len(warnings), warnings)
	}
}

// patchIcecream applies a merge patch to an Icecream.
func patchIcecream(t *testing.T, n *lab.Namespace, name, patch string) {
	t.Helper()
	if _, err := n.Icecreams().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
