package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/test/lab"
)

// hack/fork knows the names that every cluster has.
func TestTakenNames(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Options{Bare: true})
	var taken struct{ Resources, Accounts, ClusterRoles []string }
	content, err := os.ReadFile(l.Path("hack/fork/taken.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, &taken); err != nil {
		t.Fatal(err)
	}
	requireKnown := func(known []string, args ...string) {
		t.Helper()
		found := 0
		for _, name := range strings.FieldsFunc(lab.Kubectl(t, l, args...), func(r rune) bool { return strings.ContainsRune(" ,\n", r) }) {
			found++
			if name, _, _ = strings.Cut(name, "."); !slices.Contains(known, name) && !strings.HasPrefix(name, "kube-") && !strings.HasPrefix(name, "system:") {
				t.Errorf("hack/fork/taken.yaml has no %s", name)
			}
		}
		if found == 0 {
			t.Errorf("kubectl %q finds nothing", args)
		}
	}
	requireKnown(taken.Resources, "api-resources", "-o=name")
	requireKnown(taken.Accounts, "get", "serviceaccounts", "-n=kube-system", "-o=go-template={{range .items}}{{.metadata.name}} {{end}}")
	requireKnown(append(taken.Accounts, "default"), "get", "namespaces", "-o=go-template={{range .items}}{{.metadata.name}} {{end}}")
	requireKnown(taken.ClusterRoles, "get", "clusterroles", "-o=go-template={{range .items}}{{.metadata.name}} {{end}}")
	var short []string
	for line := range strings.Lines(lab.Kubectl(t, l, "api-resources", "--no-headers")) {
		if fields := strings.Fields(line); len(fields) == 5 {
			short = append(short, strings.Split(fields[1], ",")...)
		}
	}
	for _, name := range short {
		if !slices.Contains(taken.Resources, name) {
			t.Errorf("hack/fork/taken.yaml has no short name %s", name)
		}
	}
	if len(short) < 20 {
		t.Errorf("there are %d short names", len(short))
	}
}
