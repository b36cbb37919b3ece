package e2e

import (
	"fmt"
	"strings"
	"testing"

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
