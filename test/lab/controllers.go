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
