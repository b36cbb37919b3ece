package parts

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nicoleh.io/k8s-controller/hack/local-cluster/internal/lock"
)

var flags = []string{"GOFLAGS=-trimpath"}

const goMod = "module parts\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/kubernetes v1.36.3\n\tk8s.io/kubectl v0.36.3\n)\n"

func TestKubernetesVersion(t *testing.T) {
	for _, test := range []struct{ name, mod, want string }{
		{name: "in a block", mod: goMod, want: "v1.36.3"},
		{name: "on a line of its own", mod: "require k8s.io/kubernetes v1.37.0-rc.1 // pinned\n", want: "v1.37.0-rc.1"},
		{name: "not at all", mod: "require k8s.io/kubectl v0.36.3\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := kubernetesVersion([]byte(test.mod))
			if got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

func TestKeyChangesWithWhatIsBuilt(t *testing.T) {
	source := writeSource(t)
	key := func() string {
		_, key, err := identify(source, flags)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	first := key()
	if !strings.HasPrefix(first, "v1.36.3-") {
		t.Errorf("key %q does not show the version", first)
	}
	for _, name := range []string{"notes.txt", "main_test.go"} {
		write(t, filepath.Join(source, name), "of no consequence")
		if key() != first {
			t.Errorf("%s changes the key, but is not built", name)
		}
	}
	if _, other, err := identify(source, []string{"GOFLAGS="}); err != nil || other == first {
		t.Errorf("other flags leave the key as it was (%v)", err)
	}
	for _, name := range []string{"go.sum", filepath.Join("kubectl", "main.go"), "go.mod"} {
		before := key()
		write(t, filepath.Join(source, name), goMod+"// "+name)
		if key() == before {
			t.Errorf("a change of %s leaves the key as it was", name)
		}
	}
}

func TestEnsureBuildsNothingThatIsThere(t *testing.T) {
	source, cache := writeSource(t), t.TempDir()
	t.Setenv(SourceEnv, source)
	t.Setenv(CacheEnv, cache)
	_, key, err := identify(source, flags)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(cache, key), 0o755); err != nil {
		t.Fatal(err)
	}
	var progress bytes.Buffer
	got, err := Ensure(t.Context(), &progress)
	want := Parts{Components: filepath.Join(cache, key, "components"), Kubectl: filepath.Join(cache, key, "kubectl"), Version: "v1.36.3"}
	if err != nil || got != want || progress.Len() > 0 {
		t.Errorf("got %+v, %v, progress %q; want %+v", got, err, &progress, want)
	}
}

func TestEnsureWaitsForAnotherBuild(t *testing.T) {
	source, cache := writeSource(t), t.TempDir()
	t.Setenv(SourceEnv, source)
	t.Setenv(CacheEnv, cache)
	_, key, err := identify(source, flags)
	if err != nil {
		t.Fatal(err)
	}
	other, err := lock.Try(filepath.Join(cache, key+".lock"))
	if err != nil {
		t.Fatal(err)
	}
	// The other build is done as soon as this one says that it waits for it.
	progress := writerFunc(func(line []byte) (int, error) {
		if err := os.Mkdir(filepath.Join(cache, key), 0o755); err != nil {
			t.Error(err)
		}
		other.Release()
		return len(line), nil
	})
	if _, err := Ensure(t.Context(), progress); err != nil {
		t.Error(err)
	}
}

func TestEnsureReportsWhatTheCompilerSays(t *testing.T) {
	source, cache := writeSource(t), t.TempDir()
	write(t, filepath.Join(source, "go.mod"), "module parts\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.36.3\nbroken\n")
	t.Setenv(SourceEnv, source)
	t.Setenv(CacheEnv, cache)
	_, err := Ensure(context.Background(), &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "unknown directive: broken") {
		t.Errorf("got %v, want the compiler's words", err)
	}
	left, globErr := filepath.Glob(filepath.Join(cache, "*.new"))
	if globErr != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, globErr)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(line []byte) (int, error) { return f(line) }

func writeSource(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "hack", "local-cluster", "parts")
	for _, program := range []string{"components", "kubectl"} {
		if err := os.MkdirAll(filepath.Join(dir, program), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, program, "main.go"), "package main\n")
	}
	write(t, filepath.Join(root, "hack", "build.env"), "# flags\nGOFLAGS='-trimpath'\n")
	write(t, filepath.Join(dir, "go.mod"), goMod)
	write(t, filepath.Join(dir, "go.sum"), "")
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
