package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

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

// containsAll reports whether text contains all of the words.
func containsAll(text string, words ...string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// patchIcecream applies a merge patch to an Icecream.
func patchIcecream(t *testing.T, n *lab.Namespace, name, patch string) {
	t.Helper()
	if _, err := n.Icecreams().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// kubectl runs kubectl, which has to succeed, and returns its output.
func kubectl(t *testing.T, l *lab.Lab, args ...string) string {
	t.Helper()
	output, err := l.TryKubectl(t.Context(), "", args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// eventually waits until check returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(lab.Timeout); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("it did not come about that %s: %v", what, err)
}

// clientOf returns a client with that token.
func clientOf(t *testing.T, l *lab.Lab, token string) kubernetes.Interface {
	t.Helper()
	config := rest.AnonymousClientConfig(l.RESTConfig())
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// impersonate returns a client that acts as another user.
func impersonate(t *testing.T, l *lab.Lab, user string) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(l.RESTConfig())
	config.Impersonate.UserName = user
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
