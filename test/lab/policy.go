package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A Policy is a MutatingAdmissionPolicy for the Deployments of one namespace.
type Policy struct {
	namespace *Namespace
	manifest  string
	without   string // the canary's spec without the policy
}

// StartPolicy creates a policy by which the API server mutates the namespace's Deployments
// on the given operations, such as "CREATE, UPDATE", and waits until it is in force.
// mutation is a CEL expression that returns a JSON patch. The patch must change the spec of
// a Deployment whose only container has the image "registry.example/canary:1". The policy
// is deleted at the end of the test, or by Stop.
func (n *Namespace) StartPolicy(t testing.TB, operations, mutation string) *Policy {
	t.Helper()
	p := &Policy{namespace: n, manifest: fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  reinvocationPolicy: Never
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [%[2]s]}
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: %[3]q}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}
`, n.Name, operations, mutation)}
	n.Eventually(t, "a Deployment can be created", func(ctx context.Context) (err error) {
		p.without, err = p.canary(ctx)
		return err
	})
	n.Apply(t, p.manifest)
	t.Cleanup(func() {
		if err := p.delete(); err != nil {
			t.Errorf("deleting a policy: %v", err)
		}
	})
	p.eventually(t, "the policy is in force", true)
	return p
}

// StartMirrorPolicy starts a policy that replaces "registry.example/" with the given mirror
// in the images of all Deployments that are created or updated. See
// [Namespace.StartPolicy].
func (n *Namespace) StartMirrorPolicy(t testing.TB, mirror string) *Policy {
	t.Helper()
	const from = "registry.example/"
	n.Lab.witness.expectImages(n.Name, func(image string) string { return strings.Replace(image, from, mirror, 1) })
	return n.StartPolicy(t, "CREATE, UPDATE", fmt.Sprintf(`[JSONPatch{
		op: "replace", path: "/spec/template/spec/containers/0/image",
		value: object.spec.template.spec.containers[0].image.replace(%q, %q)
	}]`, from, mirror))
}

// Stop deletes the policy and waits until it is no longer in force.
func (p *Policy) Stop(t testing.TB) {
	t.Helper()
	if err := p.delete(); err != nil {
		t.Fatalf("deleting a policy: %v", err)
	}
	p.eventually(t, "the policy is no longer in force", false)
}

func (p *Policy) delete() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := p.namespace.TryKubectl(ctx, p.manifest, "delete", "--ignore-not-found", "-f", "-")
	return err
}

// eventually waits until the policy is in force or, if inForce is false, until it no longer
// is. The creation or deletion of a policy takes effect when the API server's own cache has
// received it.
func (p *Policy) eventually(t testing.TB, what string, inForce bool) {
	t.Helper()
	p.namespace.Eventually(t, what, func(ctx context.Context) error {
		spec, err := p.canary(ctx)
		if err == nil && (spec != p.without) != inForce {
			return errors.New("the API server's cache has not received the change yet")
		}
		return err
	})
}

// canary returns the spec that the API server would store for a new Deployment.
func (p *Policy) canary(ctx context.Context) (string, error) {
	return p.namespace.TryKubectl(ctx, canaryManifest, "create", "--dry-run=server", "-f", "-", "-o", "jsonpath={.spec}")
}
