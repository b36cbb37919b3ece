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
	without   string // what the canary is like without the policy
}

// StartPolicy has the API server change Deployments by a policy on these operations,
// such as "CREATE, UPDATE", and returns once it does so. mutation is a CEL expression
// of a JSON patch, which has to change something in the spec of a Deployment whose
// only container has the image "registry.example/canary:1". The policy ends with the
// test, or with Stop. Where no such policies are served, the test is skipped.
func (n *Namespace) StartPolicy(t testing.TB, operations, mutation string) *Policy {
	t.Helper()
	p := &Policy{namespace: n, manifest: n.manifestOfPolicy(t, n.Name, "apps", "deployments", operations, mutation)}
	n.Eventually(t, "a Deployment can be made", func(ctx context.Context) (err error) {
		p.without, err = p.canary(ctx)
		return err
	})
	n.Apply(t, p.manifest)
	t.Cleanup(func() {
		if err := p.remove(); err != nil {
			t.Errorf("removing a policy: %v", err)
		}
	})
	p.eventually(t, "the policy is in force", true)
	return p
}

// manifestOfPolicy is that of a MutatingAdmissionPolicy for a resource, in a namespace of
// the cluster.
func (n *Namespace) manifestOfPolicy(t testing.TB, namespace, group, resource, operations, mutation string) string {
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
`, n.versionOfPolicies(t), namespace, group, resource, operations, mutation)
}

// ApplyPolicy has the API server change a core resource in a namespace of the cluster on
// these operations, as StartPolicy does, until the cluster ends, and returns once probe
// says that it does so.
func (n *Namespace) ApplyPolicy(t testing.TB, namespace, resource, operations, mutation string, probe func(context.Context) error) {
	t.Helper()
	n.Apply(t, n.manifestOfPolicy(t, namespace, "", resource, operations, mutation))
	n.Eventually(t, "the policy is in force", probe)
}

// StartMirrorPolicy has the API server replace "registry.example/" by a mirror in the
// images of Deployments, whenever they are written.
func (n *Namespace) StartMirrorPolicy(t testing.TB, mirror string) *Policy {
	t.Helper()
	const from = "registry.example/"
	n.Lab.witness.expectImages(n.Name, func(image string) string { return strings.Replace(image, from, mirror, 1) })
	return n.StartPolicy(t, "CREATE, UPDATE", fmt.Sprintf(`[JSONPatch{
		op: "replace", path: "/spec/template/spec/containers/0/image",
		value: object.spec.template.spec.containers[0].image.replace(%q, %q)
	}]`, from, mirror))
}

// Stop removes the policy, and returns when the API server no longer follows it.
func (p *Policy) Stop(t testing.TB) {
	t.Helper()
	if err := p.remove(); err != nil {
		t.Fatalf("removing a policy: %v", err)
	}
	p.eventually(t, "the policy is no longer in force", false)
}

func (p *Policy) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := p.namespace.TryKubectl(ctx, p.manifest, "delete", "--ignore-not-found", "-f", "-")
	return err
}

// eventually waits until the policy acts, or no longer does: a change holds from the
// moment in which the API server's own cache knows of it.
func (p *Policy) eventually(t testing.TB, what string, acts bool) {
	t.Helper()
	p.namespace.Eventually(t, what, func(ctx context.Context) error {
		now, err := p.canary(ctx)
		if err == nil && (now != p.without) != acts {
			return errors.New("the API server does not know of that yet")
		}
		return err
	})
}

// canary is what the API server would make of a new Deployment.
func (p *Policy) canary(ctx context.Context) (string, error) {
	return p.namespace.TryKubectl(ctx, manifestOf("deployments", canary), "create", "--dry-run=server", "-f", "-", "-o", "jsonpath={.spec}")
}

// versionOfPolicies is the API version that the cluster serves
// MutatingAdmissionPolicies in. Without one there is nothing to test.
func (n *Namespace) versionOfPolicies(t testing.TB) string {
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
	t.Skipf("Kubernetes %s serves no MutatingAdmissionPolicy", n.Lab.Version())
	return ""
}
