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
