package main

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/modfile"

	"nicoleh.io/k8s-controller/hack/internal/modproxy"
	"nicoleh.io/k8s-controller/hack/walkthrough"
)

// TestNew takes minutes, and runs only if it is asked for: see `make test-new`.
var isAsked = flag.Bool("new", false, "make a repository, and do with it what its owner would do")

// What the generators in a new repository are is what this one uses.
func TestTools(t *testing.T) {
	content, err := os.ReadFile("../tools/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.ParseLax("go.mod", content, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools {
		path, version, _ := strings.Cut(tool, "@")
		isKnown := false
		for _, r := range mod.Require {
			isKnown = isKnown || strings.HasPrefix(path, r.Mod.Path+"/") && r.Mod.Version == version
		}
		if !isKnown {
			t.Errorf("hack/tools/go.mod does not have %s", tool)
		}
	}
}

// What cannot work is refused in one line, and nothing is written.
func TestRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	for want, args := range map[string][]string{
		"say the path of your module": {},
		"run it at a version":         {"example.com/pantry"},
	} {
		if err := run(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	if files, err := os.ReadDir("."); err != nil || len(files) > 0 {
		t.Errorf("there are %v, %v", files, err)
	}
}

// owner is somebody who has nothing of this repository but its path.
type owner struct {
	*testing.T
	dir string
	env []string
}

// run runs a command of bash and returns what it prints.
func (o owner) run(command string) string {
	o.Helper()
	out, err := o.try(command)
	if err != nil {
		o.Fatalf("%s: %v\n%s", command, err, out)
	}
	return out
}

func (o owner) try(command string) (string, error) {
	bash := exec.CommandContext(o.Context(), "bash", "-euo", "pipefail", "-c", command)
	bash.Dir, bash.Env = o.dir, o.env
	out, err := bash.CombinedOutput()
	return string(out), err
}

func (o owner) commit() {
	o.Helper()
	o.run("git add --all && git -c user.name=owner -c user.email=owner@example.com commit --quiet --message=x")
}

// edit replaces a text in a file.
func (o owner) edit(file, before, after string) {
	o.Helper()
	path := filepath.Join(o.dir, file)
	content, err := os.ReadFile(path)
	if err != nil || strings.Count(string(content), before) != 1 {
		o.Fatalf("%s has not one %q: %v", file, before, err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(content), before, after, 1)), 0o600); err != nil {
		o.Fatal(err)
	}
}

// One command makes a repository in which all tests pass, and generating changes nothing. Its owner
// changes a type, renames the kind as README says, and runs it on a real control plane.
func TestNew(t *testing.T) {
	if !*isAsked {
		t.Skip("-new is not set")
	}
	const version = "v0.1.0-test"
	proxy := t.TempDir()
	for _, dir := range []string{"../..", "../local-cluster", "../local-cluster/parts"} {
		if err := modproxy.Add(t.Context(), proxy, dir, version); err != nil {
			t.Fatal(err)
		}
	}
	env, err := modproxy.Env(t.Context(), proxy, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o := owner{T: t, dir: t.TempDir(), env: env}
	o.run("go run " + kit + "/hack/new@" + version + " example.com/pantry")
	o.dir = filepath.Join(o.dir, "pantry")
	o.run("git init --quiet")
	o.commit()
	o.run("make test")
	o.run("make generate")
	if changed := o.run("git status --porcelain"); changed != "" {
		t.Fatalf("make generate changes\n%s", changed)
	}
	o.changeType()
	o.addVersion()
	o.rename()
	o.runOnCluster()
}

// changeType adds a field, at first one with which one object would stop all informers.
func (o owner) changeType() {
	const types = "apis/database/v1alpha1/types.go"
	const field = "	// grace is how long a Pod can take to shut down.\n	// +optional\n	Grace *metav1.Duration `json:\"grace,omitempty\"`\n"
	const before = "type DatabaseSpec struct {\n"
	o.edit(types, before, before+field)
	o.run("make generate")
	if out, err := o.try("make test"); err == nil || !strings.Contains(out, "give the field the marker") {
		o.Fatalf("make test accepts a duration without a pattern: %v\n%s", err, out)
	}
	o.edit(types, "	Grace *metav1.Duration", "	// +kubebuilder:validation:Type=string\n	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(ms|s|m|h)){1,4}$`\n	Grace *metav1.Duration")
	o.run("make generate && make test")
	o.commit()
}

// addVersion serves v1beta1 beside v1alpha1, which stays the stored one, and moves the controller to it, as
// docs/change-the-api.md does with an Icecream.
func (o owner) addVersion() {
	o.run(`cp -r apis/database/v1alpha1 apis/database/v1beta1
rm apis/database/v1beta1/zz_generated.*
perl -pi -e 's/(package )v1alpha1\b/$1v1beta1/i' apis/database/v1beta1/*.go
perl -pi -e 's#^// \+kubebuilder:subresource:status#$&\n// +kubebuilder:storageversion#' apis/database/v1alpha1/types.go
make generate
git grep -l 'database/v1alpha1"' -- '*.go' ':!generated' |
  xargs perl -pi -e 's#(database/)v1alpha1"#$1v1beta1"#; s/\bv1alpha1\./v1beta1./g; s/V1alpha1\(\)/V1beta1()/g'
git grep -l 'db.example.com/v1alpha1' -- testdata artifacts | xargs perl -pi -e 's#db.example.com/v1alpha1#db.example.com/v1beta1#'
gofmt -w *.go
make test`)
	o.commit()
}

// rename follows README, with a kind that has capitals and digits inside, and ten letters in its plural.
func (o owner) rename() {
	text, err := walkthrough.Section(filepath.Join(o.dir, "README.md"), "## Another kind")
	if err != nil {
		o.Fatal(err)
	}
	blocks := walkthrough.Blocks(text)
	if len(blocks) != 1 {
		o.Fatalf("README has %d blocks about another kind", len(blocks))
	}
	o.run(strings.NewReplacer("BookShelves", "DB2Indices", "bookshelves", "db2indices", "BookShelf", "DB2Index", "bookshelf", "db2index",
		"shortName=bs", "shortName=di").Replace(blocks[0].Text))
	o.commit()
	if left := o.run("git ls-files | grep -i database || true; git grep -il database || true"); left != "" {
		o.Errorf("files with the former name:\n%s", left)
	}
}

// runOnCluster runs the controller on a real control plane until an object is Ready.
func (o owner) runOnCluster() {
	cluster, stop := context.WithCancel(o.Context())
	defer stop()
	dir := o.TempDir()
	start := func(ctx context.Context, command string) {
		o.Helper()
		process := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", "exec "+command)
		process.Dir, process.Env = o.dir, o.env
		process.Cancel = func() error { return process.Process.Signal(os.Interrupt) }
		process.WaitDelay = 30 * time.Second
		log := filepath.Join(dir, regexp.MustCompile(`\W+`).ReplaceAllString(command[:10], "-")+".log")
		file, err := os.Create(log)
		if err != nil {
			o.Fatal(err)
		}
		process.Stdout, process.Stderr = file, file
		if err := process.Start(); err != nil {
			o.Fatal(err)
		}
		o.Cleanup(func() {
			_ = process.Wait()
			_ = file.Close()
			if content, err := os.ReadFile(log); err == nil && o.Failed() {
				o.Logf("%s:\n%s", command, content)
			}
		})
	}
	up := filepath.Join(dir, "cluster")
	start(cluster, "make cluster UP='--dir "+up+"'")
	o.env = append(o.env, "KUBECONFIG="+filepath.Join(up, "kubeconfig"), "PATH="+filepath.Join(up, "bin")+":"+os.Getenv("PATH"), "KUBECACHEDIR="+dir)
	o.eventually("kubectl get --raw=/readyz")
	o.run("kubectl apply -f artifacts/crd-db2index.yaml")
	o.run("make build")
	start(cluster, "dist/db2index -bind-address=")
	o.run("kubectl apply -f artifacts/example.yaml")
	o.eventually("kubectl wait --for=condition=Ready --timeout=5s db2indices --all")
	stop()
}

// eventually repeats a command until it succeeds.
func (o owner) eventually(command string) {
	o.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for {
		out, err := o.try(command)
		switch {
		case err == nil:
			return
		case time.Now().After(deadline):
			o.Fatalf("%s: %v\n%s", command, err, out)
		}
		time.Sleep(time.Second)
	}
}
