package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
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

	const (
		quantities = "must be quantities of zero or more, such as 500m, 0.5 or 1Gi"
		known      = "must name known resources: cpu, memory"
	)
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
			want:    `spec.deploymentName: Invalid value: "CONE": must be a DNS-1123 subdomain`,
			refused: true,
		},
		{
			name:  "image",
			spec:  `image: "registry.example/Vanilla"`,
			fixed: `image: registry.example/vanilla`,
			other: `image: "registry.example/VANILLA"`,
			want:  `spec.image: Invalid value: "registry.example/VANILLA": must be an image reference`,
		},
		{
			name:    "unknown-limit",
			spec:    `resources: {limits: {Memory: 1Gi}}`,
			fixed:   `resources: {limits: {memory: 1Gi}}`,
			other:   `resources: {limits: {Memory: 2Gi}}`,
			want:    "spec.resources.limits: Invalid value: " + known,
			refused: true,
		},
		{
			name:    "unknown-request",
			spec:    `resources: {requests: {storage: 1Gi}}`,
			fixed:   `resources: {requests: {cpu: 1m}}`,
			other:   `resources: {requests: {storage: 2Gi}}`,
			want:    "spec.resources.requests: Invalid value: " + known,
			refused: true,
		},
		{
			name:    "negative-limit",
			spec:    `resources: {limits: {cpu: "-1"}}`,
			fixed:   `resources: {limits: {cpu: "1"}}`,
			other:   `resources: {limits: {cpu: "-2"}}`,
			want:    "spec.resources.limits: Invalid value: " + quantities,
			refused: true,
		},
		{
			name:    "negative-request",
			spec:    `resources: {requests: {cpu: "-1"}}`,
			fixed:   `resources: {requests: {cpu: "1"}}`,
			other:   `resources: {requests: {cpu: "-2"}}`,
			want:    "spec.resources.requests: Invalid value: " + quantities,
			refused: true,
		},
		{
			name:    "half-a-gpu",
			spec:    `resources: {limits: {example.com/gpu: "0.5"}}`,
			fixed:   `resources: {}`,
			other:   `resources: {limits: {example.com/gpu: "1.5"}}`,
			want:    "spec.resources.limits: Invalid value: must be whole numbers for extended resources",
			refused: true,
		},
		{
			name:    "half-a-page",
			spec:    `resources: {limits: {cpu: 1, hugepages-2Mi: 3Mi}}`,
			fixed:   `resources: {limits: {cpu: 1}}`,
			other:   `resources: {limits: {cpu: 1, hugepages-2Mi: 5Mi}}`,
			want:    "spec.resources.limits: Invalid value: must be multiples of the page size for huge pages",
			refused: true,
		},
		{
			name:    "pages-alone",
			spec:    `resources: {limits: {hugepages-2Mi: 4Mi}}`,
			fixed:   `resources: {}`,
			other:   `resources: {limits: {hugepages-2Mi: 6Mi}}`,
			want:    "spec.resources.limits: Invalid value: must come with cpu or memory for huge pages",
			refused: true,
		},
		{
			name:    "above-limit",
			spec:    `resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}`,
			fixed:   `resources: {requests: {memory: 1Gi}, limits: {memory: 1Gi}}`,
			other:   `resources: {requests: {memory: 3Gi}, limits: {memory: 1Gi}}`,
			want:    "spec.resources.requests: Invalid value: must not be above the limits",
			refused: true,
		},
		{
			name:    "gpu-without-limit",
			spec:    `resources: {requests: {example.com/gpu: 1}}`,
			fixed:   `resources: {}`,
			other:   `resources: {requests: {example.com/gpu: 2}}`,
			want:    "spec.resources.requests: Invalid value: must be written as in the limits for huge pages and for extended resources",
			refused: true,
		},
		{
			name:    "claim",
			spec:    `resources: {claims: [{name: spoon}]}`,
			fixed:   `resources: {claims: []}`,
			other:   `resources: {claims: [{name: fork}]}`,
			want:    "spec.resources.claims: Invalid value: must be empty: an Icecream's Pods have no resource claims",
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
	n.Controller = l.StartController(t, "-icecream-stall-after=3s")

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

// Some mistakes are found only when the Deployment is validated, such as those that were
// stored before the schema had a rule for them.
func TestSpecThatTheDeploymentRefuses(t *testing.T) {
	t.Parallel()
	l := NewLab(t, lab.Options{})
	relaxSchema(t, l)
	controller := l.StartController(t, "-icecream-stall-after=3s")
	for _, test := range []struct{ name, before string }{
		{"from the beginning", ""},
		{"as an edit", `{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: sorbet}, spec: {replicas: 2}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := l.NewNamespace(t)
			n.Controller = controller
			if test.before != "" {
				n.Apply(t, test.before)
				n.EventuallyReady(t, "sorbet")
			}
			n.Apply(t, `{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: sorbet}, spec: {replicas: 2, resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}}}`)
			ice := n.EventuallyStalled(t, "sorbet", v1alpha1.ReasonInvalidSpec)
			const says = "must be less than or equal to memory limit of 1Gi"
			if ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(ready.Message, says) {
				t.Errorf("condition Ready says %q, which does not contain %q", ready.Message, says)
			}
			if table := n.Kubectl(t, "get", "ice", "sorbet"); !strings.Contains(table, v1alpha1.ReasonInvalidSpec) {
				t.Errorf("kubectl get does not show the reason:\n%s", table)
			}
			warnings := 0
			n.Eventually(t, "there is a Warning", func(context.Context) error {
				warnings = 0
				for _, event := range n.Events(t, "sorbet") {
					if event.Type == "Warning" && event.Reason == v1alpha1.ReasonInvalidSpec {
						warnings++
					}
				}
				if warnings == 0 {
					return errors.New("there is none")
				}
				return nil
			})

			// The old Pods, if any, keep running.
			if test.before != "" {
				if d := n.Deployment(t, "sorbet"); d.Status.AvailableReplicas != 2 || ice.Status.AvailableReplicas != 2 {
					t.Errorf("%d Pods are available, the status says %d, and there were 2", d.Status.AvailableReplicas, ice.Status.AvailableReplicas)
				}
			}

			// The controller does not retry while nothing changes.
			mark := time.Now()
			time.Sleep(5 * time.Second)
			if tried := n.Requests(t).By(controller.User).Since(mark); len(tried) > 0 {
				t.Errorf("while nothing had changed, the controller made requests: %s", tried)
			}
			if warnings != 1 {
				t.Errorf("there are %d Warnings, want one", warnings)
			}

			n.Apply(t, `{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: sorbet}, spec: {replicas: 2, resources: {requests: {memory: 1Gi}, limits: {memory: 1Gi}}}}`)
			n.EventuallyReady(t, "sorbet")
			memory := n.Deployment(t, "sorbet").Spec.Template.Spec.Containers[0].Resources.Limits.Memory()
			if memory.String() != "1Gi" {
				t.Errorf("the memory limit of the Deployment is %s", memory)
			}
		})
	}
}

// crdFile is the path of the CustomResourceDefinition in this repository.
const crdFile = "artifacts/examples/crd-icecream.yaml"

// relaxSchema removes all rules from the schema of Icecreams and gives status.nodes the
// list type map, as in an earlier version of the schema.
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
		case !strings.Contains(answer.Error(), "no resource claims"):
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

// relax removes the rules from part of a schema, recursively.
func relax(part any) {
	switch part := part.(type) {
	case []any:
		for _, item := range part {
			relax(item)
		}
	case map[string]any:
		delete(part, "x-kubernetes-validations")
		delete(part, "maxProperties")
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
