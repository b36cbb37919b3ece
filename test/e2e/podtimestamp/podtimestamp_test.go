package podtimestamp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"nicoleh.io/k8s-controller/test/lab"
)

// As install.yaml installs it, it gives a Pod in any namespace its timestamp, and says what keeps it
// from that. Only those may read its metrics who have the permission.
func TestInstall(t *testing.T) {
	t.Parallel()
	l := suite.NewLab(t, lab.Options{})
	pods := l.RunPods(t)
	pods.RequireRolledOut(t)
	n := l.NewNamespace(t)
	createPod(t, n, "asking", "--annotations=addtime=")
	eventuallyStamped(t, n, "asking")
	pods.RequireMetrics(t, "podtimestamp_stamps_total 1")

	n.Apply(t, handsOff)
	createPod(t, n, "held")
	n.Eventually(t, "the policy is in force", func(ctx context.Context) error {
		_, err := n.TryKubectl(ctx, "", "annotate", "pod/held", "timestamp=x", "--dry-run=server")
		if err == nil || !strings.Contains(err.Error(), "hands off") {
			return fmt.Errorf("it is not: %w", err)
		}
		return nil
	})
	// Each time the Pod asks, there is an event. Those that say the same are one event that is counted.
	n.Eventually(t, "an event about the refusal is counted", func(ctx context.Context) error {
		n.Kubectl(t, "annotate", "pod/held", "addtime=")
		n.Kubectl(t, "annotate", "pod/held", "addtime-")
		told, err := n.TryKubectl(ctx, "", "get", "events", "--field-selector=involvedObject.name=held", "--output=jsonpath={range .items[*]}{.count} {.message}{end}")
		if err == nil && (!strings.Contains(told, "hands off") || strings.HasPrefix(told, "1 ")) {
			err = fmt.Errorf("the events are\n%s", told)
		}
		return err
	})
}

// handsOff is a policy that lets nobody set a timestamp.
const handsOff = `
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: hands-off}, spec: {
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [pods]}]},
  validations: [{expression: "!('timestamp' in object.metadata.?annotations.orValue({}))", message: hands off}]}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: hands-off}, spec: {
  policyName: hands-off, validationActions: [Deny]}}
`

// In one namespace, the controller needs only a Role there, and stamps no Pod elsewhere.
func TestOneNamespaceNeedsOnlyARole(t *testing.T) {
	t.Parallel()
	l := suite.NewLab(t, lab.Options{})
	n, other := l.NewNamespace(t), l.NewNamespace(t)
	c := n.StartController(t)
	createPod(t, other, "elsewhere", "--annotations=addtime=")
	createPod(t, n, "asking", "--annotations=addtime=")
	stamp := eventuallyStamped(t, n, "asking")
	n.Eventually(t, "an event says so", func(ctx context.Context) error {
		told, err := n.TryKubectl(ctx, "", "get", "events", "--field-selector=involvedObject.name=asking")
		if err == nil && !strings.Contains(told, "Set annotation timestamp to "+stamp) {
			err = fmt.Errorf("the events are\n%s", told)
		}
		return err
	})
	if found := timestampOf(t, other, "elsewhere"); found != "" {
		t.Errorf("a Pod in another namespace has timestamp %q", found)
	}
	if refused := l.Requests(t).By(c.User).Refused(); len(refused) > 0 {
		t.Errorf("requests were refused: %s", refused)
	}
}

// createPod creates a Pod, which no scheduler looks at.
func createPod(t *testing.T, n *lab.Namespace, name string, flags ...string) {
	t.Helper()
	n.Kubectl(t, append([]string{"run", name, "--image=registry.example/c", `--overrides={"spec":{"schedulerName":"nobody"}}`}, flags...)...)
}

// timestampOf returns the timestamp of a Pod; empty if it has none.
func timestampOf(t *testing.T, n *lab.Namespace, name string) string {
	t.Helper()
	return n.Kubectl(t, "get", "pod", name, "--output=jsonpath={.metadata.annotations.timestamp}")
}

func eventuallyStamped(t *testing.T, n *lab.Namespace, name string) (stamp string) {
	t.Helper()
	n.Eventually(t, name+" is stamped", func(context.Context) error {
		if stamp = timestampOf(t, n, name); stamp == "" {
			return errors.New("it is not")
		}
		return nil
	})
	return stamp
}
