package parts

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const goMod = "module parts\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.37.2\n"

func TestDirectoryChangesWithWhatIsBuilt(t *testing.T) {
	t.Setenv(CacheEnv, t.TempDir())
	source := filepath.Join(writeSource(t, goMod), "hack", "local-cluster", "parts")
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
}

// Nothing is compiled that is there, and what is missing is compiled later.
func TestEnsure(t *testing.T) {
	for _, test := range []struct {
		name, assets, onPath, etcd, kubectl string
		anyKubectl                          bool
	}{
		{name: "everything is compiled", onPath: "v1.37.2", etcd: "'DIR/servers' etcd", kubectl: "DIR/kubectl"},
		{name: "a kubectl on the PATH that is one minor version older", onPath: "v1.36.9-vendor.3", anyKubectl: true, etcd: "'DIR/servers' etcd", kubectl: "PATH/kubectl"},
		{name: "one that is too old", onPath: "v1.35.0", anyKubectl: true, etcd: "'DIR/servers' etcd", kubectl: "DIR/kubectl"},
		{name: "one that does not say its version", onPath: "", anyKubectl: true, etcd: "'DIR/servers' etcd", kubectl: "DIR/kubectl"},
		{name: "the user has etcd, kube-apiserver and kubectl", assets: "/assets", onPath: "v1.37.2", anyKubectl: true, etcd: "'/assets/etcd' ", kubectl: "/assets/kubectl"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root, bin := writeSource(t, goMod), t.TempDir()
			t.Setenv(CacheEnv, t.TempDir())
			t.Setenv(AssetsEnv, test.assets)
			t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			kubectl := "#!/bin/sh\n" + `echo '{"clientVersion": {"gitVersion": "` + test.onPath + `"}}'` + "\n"
			if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(kubectl), 0o700); err != nil {
				t.Fatal(err)
			}
			var progress bytes.Buffer
			got, err := ensure(t.Context(), root, test.anyKubectl, &progress)
			if err != nil || !strings.Contains(progress.String(), "compiling Kubernetes v1.37.2") {
				t.Fatalf("%v, progress %q", err, &progress)
			}
			components, _, _ := strings.Cut(got.Components["kwok"], "' kwok")
			dir := filepath.Dir(strings.TrimPrefix(components, "'"))
			where := strings.NewReplacer("DIR", dir, "PATH", bin)
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
			again, err := ensure(t.Context(), root, test.anyKubectl, &progress)
			if diff := cmp.Diff(got, again); err != nil || diff != "" || progress.Len() > 0 {
				t.Errorf("a second time: %v, progress %q, programs (-first +second):\n%s", err, &progress, diff)
			}
			t.Setenv(AssetsEnv, "")
			if got, err = ensure(t.Context(), root, false, &progress); err != nil || got.Kubectl != filepath.Join(dir, "kubectl") {
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
		root, cache := writeSource(t, goMod), t.TempDir()
		t.Setenv(CacheEnv, cache)
		write(t, filepath.Join(root, "hack", "local-cluster", "parts", test.file), test.content)
		if _, err := ensure(t.Context(), root, false, io.Discard); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want the compiler's words: %s", err, test.want)
		}
		if left, err := filepath.Glob(filepath.Join(cache, "*.new")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

// A shell that sources the file must see what Go reads.
func TestShellReadsTheSame(t *testing.T) {
	variables, err := buildEnv("../../../..")
	if err != nil || len(variables) == 0 {
		t.Fatalf("%q, %v", variables, err)
	}
	for _, variable := range variables {
		name, want, _ := strings.Cut(variable, "=")
		got, err := exec.CommandContext(t.Context(), "bash", "-c", `. ../../../build.env && printf %s "${!0}"`, name).Output()
		if err != nil || string(got) != want {
			t.Errorf("%s is %q in a shell, %v; want %q", name, got, err, want)
		}
	}
}

// writeSource writes programs that import nothing.
func writeSource(t *testing.T, mod string) (root string) {
	t.Helper()
	root = t.TempDir()
	dir := filepath.Join(root, "hack", "local-cluster", "parts")
	for _, program := range []string{"components", "servers", "kubectl"} {
		if err := os.MkdirAll(filepath.Join(dir, program), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, program, "main.go"), "package main\n\nfunc main() {}\n")
	}
	write(t, filepath.Join(root, "hack", "build.env"), "GOFLAGS=''\nGOWORK='off'\n")
	write(t, filepath.Join(dir, "go.mod"), mod)
	write(t, filepath.Join(dir, "go.sum"), "")
	return root
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
