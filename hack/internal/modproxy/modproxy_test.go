package modproxy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A module that is served can be run where nothing of the checkout is. It has files that are
// new, and none that are ignored, deleted or a nested module's.
func TestRun(t *testing.T) {
	dir, proxy, version := t.TempDir(), t.TempDir(), "v0.0.1"
	for name, content := range map[string]string{
		".gitignore":    "ignored.go\n",
		"go.mod":        "module example.com/Pantry\n\ngo 1.26.0\n",
		"main.go":       "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Print(text) }\n",
		"new.go":        "package main\n\nconst text = \"new\"\n",
		"ignored.go":    "package main\n\nconst text = \"ignored\"\n",
		"deleted.go":    "package main\n\nconst text = \"deleted\"\n",
		"nested/go.mod": "module example.com/Pantry/nested\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, dir, nil, "git", "init", "--quiet")
	run(t, dir, nil, "git", "add", "main.go", "deleted.go")
	if err := os.Remove(filepath.Join(dir, "deleted.go")); err != nil {
		t.Fatal(err)
	}
	if err := Add(t.Context(), proxy, dir, version); err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	env, err := Env(t.Context(), proxy, cache)
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, t.TempDir(), env, "go", "run", "example.com/Pantry@"+version); !strings.HasSuffix(got, "new") {
		t.Errorf("it prints %s", got)
	}
	if _, err := os.Stat(filepath.Join(cache, "example.com", "!pantry@"+version, "nested")); !os.IsNotExist(err) {
		t.Errorf("the nested module: %v", err)
	}
}

// An author who has nothing but Go runs the local cluster by its path and version. The programs
// of this one import nothing, so that they compile at once.
func TestLocalCluster(t *testing.T) {
	proxy, parts, version := t.TempDir(), t.TempDir(), "v0.0.1"
	mod := "module nicoleh.io/k8s-controller/hack/local-cluster/parts\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.37.2\n"
	if err := os.WriteFile(filepath.Join(parts, "go.mod"), []byte(mod), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"components", "servers", "kubectl"} {
		if err := os.Mkdir(filepath.Join(parts, program), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(parts, program, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, parts, nil, "git", "init", "--quiet")
	for _, dir := range []string{"../../local-cluster", parts} {
		if err := Add(t.Context(), proxy, dir, version); err != nil {
			t.Fatal(err)
		}
	}
	env, err := Env(t.Context(), proxy, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	env = append(env, "LOCAL_CLUSTER_CACHE="+cache, "KUBEBUILDER_ASSETS=")
	run(t, t.TempDir(), env, "go", "run", "nicoleh.io/k8s-controller/hack/local-cluster@"+version, "build")
	if programs, err := filepath.Glob(filepath.Join(cache, "v1.37.2-*", "*")); err != nil || len(programs) != 3 {
		t.Errorf("it compiles %q, %v", programs, err)
	}
}

func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir, command.Env = dir, env
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
