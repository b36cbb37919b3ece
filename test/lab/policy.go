package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
// is deleted at the end of the test, or by Stop. If the cluster does not support such
// policies, the test is skipped.
func (n *Namespace) StartPolicy(t testing.TB, operations, mutation string) *Policy {
	t.Helper()
	p := &Policy{namespace: n, manifest: n.policyManifest(t, n.Name, "apps", "deployments", operations, mutation)}
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

// policyManifest returns the manifest of a MutatingAdmissionPolicy for one resource in any
// namespace of the cluster.
func (n *Namespace) policyManifest(t testing.TB, namespace, group, resource, operations, mutation string) string {
	t.Helper()
	return fmt.Sprintf(`
apiVersion: %[1]s
kind: MutatingAdmissionPolicy
metadata: {name: %[2]s-%[4]s}
spec:
  reinvocationPolicy: Never
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}
    resourceRules:
    - {apiGroups: [%[3]q], apiVersions: [v1], resources: [%[4]s], operations: [%[5]s]}
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: %[6]q}
---
apiVersion: %[1]s
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[2]s-%[4]s}
spec: {policyName: %[2]s-%[4]s}
`, n.policyVersion(t), namespace, group, resource, operations, mutation)
}

// ApplyPolicy creates a policy like that of [Namespace.StartPolicy], but for a resource of
// the core API group in any namespace of the cluster. It waits until probe returns nil. The
// policy stays in force until the cluster is stopped.
func (n *Namespace) ApplyPolicy(t testing.TB, namespace, resource, operations, mutation string, probe func(context.Context) error) {
	t.Helper()
	n.Apply(t, n.policyManifest(t, namespace, "", resource, operations, mutation))
	n.Eventually(t, "the policy is in force", probe)
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
	return p.namespace.TryKubectl(ctx, manifestOf("deployments", canary), "create", "--dry-run=server", "-f", "-", "-o", "jsonpath={.spec}")
}

// policyVersion returns the API version of MutatingAdmissionPolicy that the cluster serves.
// If there is none, it skips the test.
func (n *Namespace) policyVersion(t testing.TB) string {
	t.Helper()
	for _, version := range []string{"admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1"} {
		served, err := n.Lab.Kube.Discovery().ServerResourcesForGroupVersion(version)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range served.APIResources {
			if resource.Kind == "MutatingAdmissionPolicy" {
				return version
			}
		}
	}
	t.Skipf("Kubernetes %s does not serve MutatingAdmissionPolicy", n.Lab.Version())
	return ""
}
