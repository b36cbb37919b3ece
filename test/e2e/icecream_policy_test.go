package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/test/lab"
)

// person tries what somebody may do with the Icecreams of a namespace.
type person struct {
	*testing.T
	n    *lab.Namespace
	name string
}

// try runs kubectl as that person, without effect.
func (p *person) try(stdin string, args ...string) error {
	_, err := p.n.TryKubectl(p.Context(), stdin, append(args, "--dry-run=server", "--as="+p.name)...)
	return err
}

// may requires that an attempt succeeds.
func (p *person) may(stdin string, args ...string) {
	p.Helper()
	lab.RequireAllowed(p.T, p.try(stdin, args...))
}

// mayNot waits until the policy about templates refuses an attempt, in those words.
func (p *person) mayNot(words, stdin string, args ...string) {
	p.Helper()
	const policy = "k8s-controller-icecream-template"
	p.isRefused(fmt.Sprintf("ValidatingAdmissionPolicy '%[1]s' with binding '%[1]s' denied request: %[2]s", policy, words), stdin, args...)
}

// isRefused waits until the API server forbids an attempt, in those words.
func (p *person) isRefused(words, stdin string, args ...string) {
	p.Helper()
	lab.Eventually(p.T, fmt.Sprintf("%s may not: %s %s", p.name, strings.Join(args, " "), stdin), func() error {
		switch err := p.try(stdin, args...); {
		case err == nil:
			return fmt.Errorf("it is allowed; want %q", words)
		case !lab.ContainsAll(err.Error(), "Error from server (Forbidden)", words):
			p.Fatalf("the API server says: %v; want %q", err, words)
		}
		return nil
	})
}

// Only who may write Deployments decides what Pods can do: by a template, or by the image that
// runs with it. Nobody else needs that permission.
func TestWhoDecidesAboutTemplates(t *testing.T) {
	t.Parallel()
	n, other := NewQuietNamespace(t), NewQuietNamespace(t)
	const (
		create   = "spec.template decides what the Pods can do, so setting it takes permission to create Deployments"
		update   = "spec.template decides what the Pods can do, so changing it or their image takes permission to update Deployments"
		template = `template: {spec: {priorityClassName: dessert, containers: [{name: icecream, env: [{name: FLAVOR, value: mint}]}]}}`
	)
	n.Kubectl(t, "create", "role", "icecreams", "--verb=get,list,create,update,patch,delete",
		"--resource=icecreams.controller.nicoleh.io,icecreams.controller.nicoleh.io/scale")
	newPerson := func(name string, grants ...string) *person {
		for _, grant := range append(grants, "--role=icecreams") {
			_, role, _ := strings.Cut(grant, "=")
			n.Kubectl(t, "create", "rolebinding", name+"-"+role, grant, "--user="+name)
		}
		return &person{t, n, name}
	}
	scooper := newPerson("scooper")
	other.Kubectl(t, "create", "rolebinding", "scooper", "--clusterrole=admin", "--user=scooper") // which is of no use
	n.Apply(t, icecreamYAML("plain", "image: registry.example/plain:1"))
	n.Apply(t, icecreamYAML("dressed", "image: registry.example/dressed:1", template))

	scooper.may(icecreamYAML("new", "replicas: 2"), "create", "-f-")
	scooper.mayNot(create, icecreamYAML("new", template), "create", "-f-")
	scooper.mayNot(create, icecreamYAML("new", template), "apply", "-f-")
	scooper.mayNot(create, icecreamYAML("new", template), "apply", "--server-side", "-f-")
	scooper.mayNot(create, icecreamYAML("new", "template: {}"), "create", "-f-")

	patch := func(name, spec string) []string {
		return []string{"patch", "icecream", name, "--type=merge", `--patch={"spec":` + spec + `}`}
	}
	for what, args := range map[string][]string{
		"add":              patch("plain", `{"template":{"spec":{"serviceAccountName":"builder"}}}`),
		"add an empty one": patch("plain", `{"template":{}}`),
		"change":           patch("dressed", `{"template":{"spec":{"priorityClassName":"breakfast"}}}`),
		"change a list":    patch("dressed", `{"template":{"spec":{"containers":[]}}}`),
		"remove":           patch("dressed", `{"template":null}`),
		"empty":            patch("dressed", `{"template":{"spec":null}}`),
		"another image":    patch("dressed", `{"image":"registry.example/any:1"}`),
		"with an image":    patch("plain", `{"image":"registry.example/any:1","template":{"spec":{"hostNetwork":true}}}`),
		"no image":         patch("dressed", `{"image":null}`),
	} {
		t.Run(what, func(t *testing.T) {
			(&person{t, n, "scooper"}).mayNot(update, "", args...)
		})
	}
	scooper.mayNot(update, icecreamYAML("dressed", "image: registry.example/dressed:1"), "replace", "-f-")
	changed := icecreamYAML("dressed", "template: {spec: {priorityClassName: lunch}}")
	scooper.mayNot(update, changed, "apply", "--server-side", "--force-conflicts", "-f-")

	scooper.may("", patch("plain", `{"image":"registry.example/plain:2"}`)...)
	scooper.may("", patch("dressed", `{"replicas":3}`)...)
	scooper.may("", "scale", "icecream/dressed", "--replicas=3")
	scooper.may("", patch("dressed", `{"resources":{"requests":{"cpu":"50m"}}}`)...)
	scooper.may("", "annotate", "icecream/dressed", "note=chocolate")
	scooper.may(icecreamYAML("dressed", "replicas: 3", "image: registry.example/dressed:1", template), "replace", "-f-")
	scooper.may("", "delete", "icecream/dressed")

	// To create is not to update.
	n.Kubectl(t, "create", "role", "creates", "--verb=create", "--resource=deployments.apps")
	creator := newPerson("creator", "--role=creates")
	creator.may(icecreamYAML("new", template), "create", "-f-")
	creator.mayNot(update, "", patch("dressed", `{"template":null}`)...)

	// A tenant decides. What opens the namespace for more is no tenant's.
	for _, role := range []string{"edit", "admin"} {
		tenant := newPerson("tenant-"+role, "--clusterrole="+role)
		tenant.may(icecreamYAML("new", template), "create", "-f-")
		tenant.may("", patch("plain", `{"template":{"spec":{"serviceAccountName":"builder"}}}`)...)
		tenant.may("", patch("dressed", `{"template":null}`)...)
		tenant.may("", patch("dressed", `{"image":"registry.example/dressed:2"}`)...)
		const label = "controller.nicoleh.io/pods=unrestricted"
		tenant.isRefused(`cannot patch resource "namespaces"`, "", "label", "namespace", n.Name, label)
	}
}

// A label of a namespace has the controller's account, and with it a stolen token, give more power to
// Pods there. It gives nothing else, and nothing elsewhere.
func TestStolenTokenAndLabelledNamespaces(t *testing.T) {
	t.Parallel()
	s := newThief(t)
	ordinary, opened, closed := s.Lab.NewNamespace(t).Name, s.Lab.NewNamespace(t), s.Lab.NewNamespace(t).Name
	lab.Kubectl(t, s.Lab, "label", "namespace", opened.Name, "controller.nicoleh.io/pods=unrestricted")
	lab.Kubectl(t, s.Lab, "label", "namespace", closed, "controller.nicoleh.io/pods=restricted")
	opened.Apply(t, icecreamYAML("vanilla"))

	owned := fmt.Sprintf(`{"apiVersion":"controller.nicoleh.io/v1alpha1","kind":"Icecream","name":"vanilla","uid":%q,"controller":true}`,
		opened.Icecream(t, "vanilla").UID)
	legitimate := fmt.Sprintf(`{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": {"name": "vanilla", "ownerReferences": [%s]},
		"spec": {"selector": {"matchLabels": {"app": "vanilla"}}, "template": {
			"metadata": {"labels": {"app": "vanilla"}},
			"spec": {
				"automountServiceAccountToken": false, "securityContext": {"runAsNonRoot": true},
				"containers": [{"name": "icecream", "image": "registry.example/vanilla:1"}]
			}}}}`, owned)
	create := func(client kubernetes.Interface, namespace, change string, o metav1.CreateOptions) error {
		d := &appsv1.Deployment{}
		changed, err := strategicpatch.StrategicMergePatch([]byte(legitimate), []byte(change), d)
		if err := errors.Join(err, json.Unmarshal(changed, d)); err != nil {
			return err
		}
		_, err = client.AppsV1().Deployments(namespace).Create(t.Context(), d, o)
		return err
	}
	// apply writes as the controller does.
	apply := func(namespace, change string) error {
		changed, err := strategicpatch.StrategicMergePatch([]byte(legitimate), []byte(change), &appsv1.Deployment{})
		if err != nil {
			return err
		}
		_, err = s.Kube.AppsV1().Deployments(namespace).Patch(t.Context(), "vanilla", types.ApplyYAMLPatchType, changed,
			metav1.PatchOptions{FieldManager: "icecream-controller", Force: ptr.To(true), DryRun: lab.TryPatch.DryRun})
		return err
	}
	pod := func(spec string) string { return `{"spec":{"template":{"spec":{` + spec + `}}}}` }
	container := func(fields string) string { return pod(`"containers":[{"name":"icecream",` + fields + `}]`) }
	const variable = `"env":[{"name":"P","valueFrom":{"secretKeyRef":{"name":"password","key":"p"}}}]`
	powers := map[string]struct{ words, change string }{
		"a service account":      {"service account builder", pod(`"serviceAccountName":"builder"`)},
		"a token":                {"a token", pod(`"automountServiceAccountToken":true`)},
		"a Secret by variable":   {"Secret password/p", container(variable)},
		"a Secret by volume":     {"volume v", pod(`"volumes":[{"name":"v","secret":{"secretName":"password"}}]`)},
		"root":                   {"root", pod(`"securityContext":{"runAsUser":0}`)},
		"a privileged container": {"privileged", container(`"securityContext":{"privileged":true}`)},
		"the host's network":     {"hostNetwork", pod(`"hostNetwork":true`)},
	}
	for name, power := range powers {
		t.Run(name, func(t *testing.T) {
			s := s.In(t)
			for _, namespace := range []string{ordinary, closed} {
				words := fmt.Sprintf("may not give Pods more power: %s (to allow that in this namespace, label it: "+
					"kubectl label namespace %s controller.nicoleh.io/pods=unrestricted)", power.words, namespace)
				s.RequireRefused("icecream-pods", words, func(context.Context) error {
					return create(s.Kube, namespace, power.change, lab.TryCreate)
				})
				s.RequireRefused("icecream-pods", words, func(context.Context) error { return apply(namespace, power.change) })
			}
			lab.Eventually(t, "it is allowed where the label says so", func() error {
				return errors.Join(create(s.Kube, opened.Name, power.change, lab.TryCreate), apply(opened.Name, power.change))
			})
		})
	}
	lab.RequireAllowed(t, apply(ordinary, `{}`))

	// All else stays denied.
	const (
		owner      = "may only write Deployments that an Icecream controls"
		others     = "may not change Deployments of other owners"
		finalizers = "may not add finalizers"
		pods       = "may not give Pods finalizers"
	)
	for words, change := range map[string]string{
		owner:      `{"metadata":{"ownerReferences":null}}`,
		finalizers: `{"metadata":{"finalizers":["example.com/stay"]}}`,
		pods:       `{"spec":{"template":{"metadata":{"finalizers":["example.com/stay"]}}}}`,
	} {
		s.RequireRefused("icecream", words, func(context.Context) error { return create(s.Kube, opened.Name, change, lab.TryCreate) })
		s.RequireRefused("icecream", words, func(context.Context) error { return apply(opened.Name, change) })
	}
	lab.RequireAllowed(t, create(s.Lab.Kube, opened.Name, `{}`, metav1.CreateOptions{}))
	opened.Kubectl(t, "create", "deployment", "payments", "--image=registry.example/payments:1")
	patch := func(ctx context.Context, name, body string) error {
		_, err := s.Kube.AppsV1().Deployments(opened.Name).Patch(ctx, name, types.StrategicMergePatchType, []byte(body), lab.TryPatch)
		return err
	}
	lab.RequireAllowed(t, patch(t.Context(), "vanilla", powers["a privileged container"].change))
	s.RequireRefused("icecream", finalizers, func(ctx context.Context) error {
		return patch(ctx, "vanilla", `{"metadata":{"finalizers":["example.com/stay"]}}`)
	})
	s.RequireRefused("icecream", pods, func(ctx context.Context) error {
		return patch(ctx, "vanilla", `{"spec":{"template":{"metadata":{"finalizers":["example.com/stay"]}}}}`)
	})
	s.RequireRefused("icecream", "and may not delete them", func(ctx context.Context) error {
		return s.Kube.AppsV1().Deployments(opened.Name).Delete(ctx, "vanilla", lab.TryDelete)
	})
	seize := fmt.Sprintf(`{"metadata":{"ownerReferences":[%s]}}`, owned)
	s.RequireRefused("icecream", others, func(ctx context.Context) error { return patch(ctx, "payments", seize) })

	// Without the label, what is there may stay, and no more comes.
	opened.Kubectl(t, "patch", "deployment", "vanilla", "--type=strategic", "-p", powers["a Secret by variable"].change)
	lab.Kubectl(t, s.Lab, "label", "namespace", opened.Name, "controller.nicoleh.io/pods-")
	s.RequireRefused("icecream-pods", "more power: privileged", func(ctx context.Context) error {
		return patch(ctx, "vanilla", powers["a privileged container"].change)
	})
	lab.RequireAllowed(t, patch(t.Context(), "vanilla", container(`"image":"registry.example/vanilla:2"`)))
}
