package lab

import (
	"encoding/json"
	"os"
	"testing"
)

// OptionalControllers returns the names of the controllers that are off by default, each
// of which has its roles and its policy in artifacts/rbac-<name>.yaml.
func (l *Lab) OptionalControllers(t testing.TB) (names []string) {
	t.Helper()
	content, err := os.ReadFile(l.Path("charts/k8s-controller/files/controllers.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Name        string
		OnByDefault bool
	}
	if err := json.Unmarshal(content, &all); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if !c.OnByDefault {
			names = append(names, c.Name)
		}
	}
	return names
}

// MayDelete has the controllers' account be able to delete what it may not: else another
// part of admission, which most clusters do without, keeps it from naming owners.
func (l *Lab) MayDelete(t testing.TB, resource string) {
	t.Helper()
	for _, args := range [][]string{
		{"create", "clusterrole", "deleter", "--verb=delete", "--resource=" + resource},
		{"create", "clusterrolebinding", "deleter", "--clusterrole=deleter", "--serviceaccount=" + SystemNamespace + ":" + ServiceAccount},
	} {
		if _, err := l.TryKubectl(t.Context(), "", args...); err != nil {
			t.Fatal(err)
		}
	}
}
