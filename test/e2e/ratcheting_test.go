package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// A mistake that was stored when the schema was more lenient does not prevent other
// edits. Only edits with another such mistake are refused.
func TestStoredMistakesAreTolerated(t *testing.T) {
	t.Parallel()
	l := NewLab(t, lab.Options{})
	n := l.NewNamespace(t)
	relaxSchema(t, l)

	// Each of these breaks one rule of the schema.
	mistakes := []struct {
		name, spec, fixed, other, want string
		refused                        bool // whether the API server refuses it in a Deployment, too
	}{
		{
			name:    "deployment-name",
			spec:    `deploymentName: Cone`,
			fixed:   `deploymentName: cone`,
			other:   `deploymentName: CONE`,
			want:    `spec.deploymentName: Invalid value: "CONE"`,
			refused: true,
		},
		{
			name:  "image",
			spec:  `image: "registry.example/${FLAVOR}"`,
			fixed: `image: registry.example/vanilla`,
			other: `image: "registry.example/${TASTE}"`,
			want:  `spec.image: Invalid value: "registry.example/${TASTE}"`,
		},
		{
			name:  "quantity",
			spec:  `resources: {requests: {memory: "1e-100"}}`,
			fixed: `resources: {requests: {memory: "1e-10"}}`,
			other: `resources: {requests: {memory: "1e-200"}}`,
			want:  `spec.resources.requests.memory: Invalid value: "1e-200"`,
		},
		{
			name:    "claim",
			spec:    `resources: {claims: [{name: spoon}]}`,
			fixed:   `resources: {claims: []}`,
			other:   `resources: {claims: [{name: fork}]}`,
			want:    "spec.resources.claims: Too many: 1: must have at most 0 items",
			refused: true,
		},
	}
	manifest := func(name string, replicas int, spec string) string {
		return fmt.Sprintf(`{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: %q}, spec: {replicas: %d, %s}}`, name, replicas, spec)
	}
	for _, m := range mistakes {
		n.Apply(t, manifest(m.name, 1, m.spec))
	}
	restoreSchema(t, l)
	n.Controller = l.StartController(t)

	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			hasStatus := func(replicas int32) func(ice *v1alpha1.Icecream) error {
				return func(ice *v1alpha1.Icecream) error {
					switch {
					case *ice.Spec.Replicas != replicas:
						return fmt.Errorf("its spec has %d replicas", *ice.Spec.Replicas)
					case m.refused:
						return lab.IsStalled(v1alpha1.ReasonInvalidSpec)(ice)
					}
					return lab.IsReady(ice)
				}
			}
			n.EventuallyIcecream(t, m.name, "has a status", hasStatus(1))

			n.Kubectl(t, "label", "icecream", m.name, "flavor=plain")
			n.Kubectl(t, "scale", "icecream", m.name, "--replicas=2")
			n.EventuallyIcecream(t, m.name, "is scaled", hasStatus(2))

			// The same manifest can also be applied with another change.
			n.Apply(t, manifest(m.name, 3, m.spec))
			n.EventuallyIcecream(t, m.name, "is applied again", hasStatus(3))

			if refusal := n.Refused(t, manifest(m.name, 3, m.other)); !strings.Contains(refusal, m.want) {
				t.Errorf("another mistake of this kind is refused with\n%s\nwhich does not contain %q", refusal, m.want)
			}
			n.Apply(t, manifest(m.name, 3, m.fixed))
			if ice := n.EventuallyReady(t, m.name); ice.Labels["flavor"] != "plain" || ice.Status.AvailableReplicas != 3 {
				t.Errorf("in the end, the Icecream has labels %v and %d available Pods", ice.Labels, ice.Status.AvailableReplicas)
			}
		})
	}
}

// When status.nodes was a list of type map, an entry that someone else wrote had two
// owners, and the controller could not remove it.
func TestNodesOfOthersGo(t *testing.T) {
	t.Parallel()
	l := NewLab(t, lab.Options{})
	n := l.NewNamespace(t)
	n.Controller = l.StartController(t)
	n.Create(t, "sundae", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "sundae")

	addNode := func(node string) {
		t.Helper()
		ice := n.Icecream(t, "sundae")
		ice.Status.Nodes = append(ice.Status.Nodes, v1alpha1.IcecreamNode{Name: node, Pods: 7, ReadyPods: 7})
		if _, err := n.Icecreams().UpdateStatus(t.Context(), ice, metav1.UpdateOptions{FieldManager: "restore"}); err != nil {
			t.Fatal(err)
		}
	}
	listsItsNodes := func(ice *v1alpha1.Icecream) error {
		var pods int32
		for _, node := range ice.Status.Nodes {
			pods += node.Pods
		}
		if pods != ice.Status.Replicas {
			return fmt.Errorf("its nodes are %v", ice.Status.Nodes)
		}
		return lab.IsReady(ice)
	}
	addNode("the-moon")
	n.EventuallyIcecream(t, "sundae", "lists only nodes that have its Pods", listsItsNodes)

	// This entry was written while the list had type map.
	n.Controller.Stop(t)
	relaxSchema(t, l)
	addNode("the-sun")
	restoreSchema(t, l)
	n.Controller.Start(t)
	n.EventuallyIcecream(t, "sundae", "lists only nodes that have its Pods", listsItsNodes)
}

// crdFile is the path of the CustomResourceDefinition in this repository.
const crdFile = "artifacts/examples/crd-icecream.yaml"

// relaxSchema removes patterns and bounds from the schema of Icecreams and gives status.nodes
// the list type map, as in an earlier version of the schema.
func relaxSchema(t *testing.T, l *lab.Lab) {
	t.Helper()
	var crd map[string]any
	if err := yaml.Unmarshal(readCRD(t, l), &crd); err != nil {
		t.Fatal(err)
	}
	relax(crd)
	content, err := yaml.Marshal(crd)
	if err != nil {
		t.Fatal(err)
	}
	applyCRD(t, l, content, func(answer error) error { return answer })
}

// restoreSchema undoes relaxSchema.
func restoreSchema(t *testing.T, l *lab.Lab) {
	t.Helper()
	applyCRD(t, l, readCRD(t, l), func(answer error) error {
		switch {
		case answer == nil:
			return errors.New("a resource claim is accepted")
		case !strings.Contains(answer.Error(), "at most 0 items"):
			return answer
		}
		return nil
	})
}

// readCRD returns the CustomResourceDefinition of this repository.
func readCRD(t *testing.T, l *lab.Lab) []byte {
	t.Helper()
	content, err := os.ReadFile(l.Path(crdFile))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// relax does so in part of a schema, recursively.
func relax(part any) {
	switch part := part.(type) {
	case []any:
		for _, item := range part {
			relax(item)
		}
	case map[string]any:
		for _, rule := range []string{"pattern", "maxLength", "maxItems"} {
			delete(part, rule)
		}
		if part["x-kubernetes-list-type"] == "atomic" {
			part["x-kubernetes-list-type"] = "map"
			part["x-kubernetes-list-map-keys"] = []any{"name"}
		}
		for _, child := range part {
			relax(child)
		}
	}
}

// applyCRD applies a CustomResourceDefinition, and waits until isInUse returns nil for
// the API server's response to a spec with a resource claim.
func applyCRD(t *testing.T, l *lab.Lab, crd []byte, isInUse func(answer error) error) {
	t.Helper()
	if _, err := l.TryKubectl(t.Context(), string(crd), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	const claim = `{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: probe}, spec: {resources: {claims: [{name: spoon}]}}}`
	n := l.NewNamespace(t)
	n.Eventually(t, "the schema is in use", func(ctx context.Context) error {
		_, err := n.TryKubectl(ctx, claim, "create", "--dry-run=server", "-f", "-")
		return isInUse(err)
	})
}
