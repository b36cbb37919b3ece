package lab

import (
	"path/filepath"
	"strings"
	"testing"
)

// OptionalControllers returns the names of the controllers that are off by default, each
// of which has its roles and its policy in artifacts/rbac-<name>.yaml.
func (l *Lab) OptionalControllers(t testing.TB) (names []string) {
	t.Helper()
	manifests, err := filepath.Glob(l.Path("artifacts/rbac-*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range manifests {
		if name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "rbac-"), ".yaml"); name != "icecream" {
			names = append(names, name)
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
