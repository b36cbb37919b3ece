package parts

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const goMod = "module parts\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.37.2\n"

func TestDirectoryChangesWithWhatIsBuilt(t *testing.T) {
	t.Setenv(CacheEnv, t.TempDir())
	source := writeSource(t, goMod)
	dir := func(settings ...any) string {
		dir, err := cacheDir("v1.37.2", source, settings...)
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	if dir("GOFLAGS=-trimpath") == dir("GOFLAGS=") {
		t.Error("other flags do not change the directory")
	}
	for _, name := range []string{"go.sum", filepath.Join("kubectl", "main.go"), "go.mod"} {
		before := dir()
		write(t, filepath.Join(source, name), goMod+"// "+name)
		if dir() == before {
			t.Errorf("a change of %s does not change the directory", name)
		}
	}
	checkout := dir()
	write(t, filepath.Join(source, "LICENSE"), "")
	if dir() != checkout {
		t.Error("a download of the same programs has another directory")
	}
}

// Nothing is compiled that is there, and what is missing is compiled later.
func TestEnsure(t *testing.T) {
	for _, test := range []struct {
		name, assets, etcd, kubectl string
	}{
		{name: "everything is compiled", etcd: "'DIR/servers' etcd", kubectl: "DIR/kubectl"},
		{name: "the user has etcd, kube-apiserver and kubectl", assets: "/assets", etcd: "'/assets/etcd' ", kubectl: "/assets/kubectl"},
	} {
		t.Run(test.name, func(t *testing.T) {
			source := writeSource(t, goMod)
			t.Setenv(CacheEnv, t.TempDir())
			t.Setenv(AssetsEnv, test.assets)
			var progress bytes.Buffer
			got, err := ensure(t.Context(), source, &progress)
			if err != nil || !strings.Contains(progress.String(), "compiling Kubernetes v1.37.2") {
				t.Fatalf("%v, progress %q", err, &progress)
			}
			components, _, _ := strings.Cut(got.Components["kwok"], "' kwok")
			dir := filepath.Dir(strings.TrimPrefix(components, "'"))
			where := strings.NewReplacer("DIR", dir)
			if want := where.Replace(test.etcd); got.Components["etcd"] != want {
				t.Errorf("etcd is %s, want %s", got.Components["etcd"], want)
			}
			if want := where.Replace(test.kubectl); got.Kubectl != want {
				t.Errorf("kubectl is %s, want %s", got.Kubectl, want)
			}
			for program, isNeeded := range map[string]bool{"components": true, "servers": test.assets == "", "kubectl": strings.HasPrefix(got.Kubectl, dir)} {
				if _, err := os.Stat(filepath.Join(dir, program)); (err == nil) != isNeeded {
					t.Errorf("%s is needed: %v; looking for it: %v", program, isNeeded, err)
				}
			}
			progress.Reset()
			again, err := ensure(t.Context(), source, &progress)
			if diff := cmp.Diff(got, again); err != nil || diff != "" || progress.Len() > 0 {
				t.Errorf("a second time: %v, progress %q, programs (-first +second):\n%s", err, &progress, diff)
			}
			t.Setenv(AssetsEnv, "")
			if got, err = ensure(t.Context(), source, &progress); err != nil || got.Kubectl != filepath.Join(dir, "kubectl") {
				t.Errorf("what is missing is not compiled later: %v, kubectl is %s", err, got.Kubectl)
			}
		})
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	release, err := lock(t.Context(), path, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lock(ctx, path, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("a lock that is held is taken: %v", err)
	}
	release()
	if release, err = lock(t.Context(), path, t.Output()); err != nil {
		t.Fatal(err)
	}
	release()
}

func TestEnsureReportsWhatTheCompilerSays(t *testing.T) {
	for _, test := range []struct{ file, content, want string }{
		{"go.mod", goMod + "broken\n", "unknown directive: broken"},
		{"kubectl/main.go", "package main\n\nfunc main() { broken() }\n", "undefined: broken"},
	} {
		source, cache := writeSource(t, goMod), t.TempDir()
		t.Setenv(CacheEnv, cache)
		write(t, filepath.Join(source, test.file), test.content)
		if _, err := ensure(t.Context(), source, io.Discard); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want the compiler's words: %s", err, test.want)
		}
		if left, err := filepath.Glob(filepath.Join(cache, "*.new")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

// Shells and the Makefile read the file, and a program that was downloaded has none.
func TestBuildEnvIsThatOfTheFile(t *testing.T) {
	content, err := os.ReadFile("../../../build.env")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(content)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			want = append(want, name+"="+strings.Trim(value, "'"))
		}
	}
	if diff := cmp.Diff(want, buildEnv); diff != "" {
		t.Errorf("-hack/build.env +buildEnv:\n%s", diff)
	}
}

// writeSource writes programs that import nothing.
func writeSource(t *testing.T, mod string) (source string) {
	t.Helper()
	source = t.TempDir()
	for _, program := range []string{"components", "servers", "kubectl"} {
		if err := os.Mkdir(filepath.Join(source, program), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(source, program, "main.go"), "package main\n\nfunc main() {}\n")
	}
	write(t, filepath.Join(source, "go.mod"), mod)
	write(t, filepath.Join(source, "go.sum"), "")
	return source
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
