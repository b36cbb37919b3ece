// Command fork makes a repository of your own from this one, under your names, and later
// merges newer versions of this one into it. Both start here, in the template:
//
//	go run ./hack/fork -module example.com/pantry -group pantry.example.com -version v1alpha1 -kind Shelf -dir ../pantry
//	go run ./hack/fork update -dir ../pantry
//
// The branch template of a fork contains what this command has written, version by
// version, and main starts there. So an update is an ordinary merge by git.
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "fork:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	isUpdate := len(args) > 0 && args[0] == "update"
	flags := flag.NewFlagSet("fork", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	dir := flags.String("dir", "", "Directory of the fork.")
	var a Answers
	if isUpdate {
		args = args[1:]
	} else {
		flags.StringVar(&a.Module, "module", "", "Path of the Go module, such as example.com/pantry.")
		flags.StringVar(&a.Group, "group", "", "Group of the API, such as pantry.example.com.")
		flags.StringVar(&a.Version, "version", "", "Version of the API, such as v1alpha1.")
		flags.StringVar(&a.Kind, "kind", "", "Kind of the API, such as Shelf.")
		flags.StringVar(&a.Plural, "plural", "", "Plural of the kind in lower case. Default: the regular English plural.")
		flags.StringVar(&a.Short, "short", "", "Short name for kubectl, such as sh. Default: the first letters of the kind, two or more.")
	}
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return err
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("%q is not a flag", flags.Arg(0))
	case *dir == "":
		return errors.New("-dir is missing: where is the fork?")
	}
	if *dir, err = filepath.Abs(*dir); err != nil {
		return err
	}
	template, err := git(ctx, ".", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if isUpdate {
		return update(ctx, template, *dir)
	}
	return create(ctx, template, *dir, a)
}

const (
	// originFile records how a fork was made.
	originFile = ".template.yaml"
	// branch is the branch of a fork that contains only what this command writes.
	branch = "template"
)

// origin is the content of originFile.
type origin struct {
	Answers Answers `json:"answers"`
	Commit  string  `json:"commit"` // of the template
}

// create makes a fork of the commit that is checked out in the template.
func create(ctx context.Context, template, dir string, a Answers) (err error) {
	entries, missing := os.ReadDir(dir)
	if len(entries) > 0 {
		return fmt.Errorf("-dir %q: the directory is not empty", dir)
	} else if missing != nil && !errors.Is(missing, os.ErrNotExist) {
		return fmt.Errorf("-dir %q: %w", dir, missing)
	}
	if inside, err := filepath.Rel(template, dir); err != nil || !strings.HasPrefix(inside, "..") {
		return fmt.Errorf("-dir %q: it is inside of the template", dir)
	}
	names, err := a.Names()
	if err != nil {
		return err
	}
	a.Plural, a.Short = names.Plural(), names.Short // a later version could choose others
	fmt.Printf("%s: the plural is %s and the short name %s (-plural and -short choose others).\n", a.Kind, a.Plural, a.Short)
	if changes, err := git(ctx, template, "status", "--porcelain"); err != nil {
		return err
	} else if changes != "" {
		fmt.Println("Changes that are not committed here will not be in it.")
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		if err != nil && missing == nil {
			err = errors.Join(err, os.Mkdir(dir, 0o755))
		}
	}()
	if err := render(ctx, template, a, dir); err != nil {
		return err
	}
	if _, err := git(ctx, dir, "init", "--quiet", "--initial-branch", branch); err != nil {
		return err
	}
	if err := commit(ctx, template, dir); err != nil {
		return err
	}
	if _, err := git(ctx, dir, "checkout", "--quiet", "-b", "main"); err != nil {
		return err
	}
	fmt.Printf("%s is ready. There, `make demo` shows it at work, and `make test` tests it.\n", dir)
	return nil
}

var errConflict = errors.New("both sides have changed the same lines: resolve that, run `make generate`, and commit the merge")

// update commits to the branch template of a fork what the template has become, and merges
// that into the fork's current branch.
func update(ctx context.Context, template, dir string) (err error) {
	content, err := os.ReadFile(filepath.Join(dir, originFile))
	if err != nil {
		return fmt.Errorf("-dir %q: not a fork: %w", dir, err)
	}
	var o origin
	if err := yaml.UnmarshalStrict(content, &o); err != nil {
		return fmt.Errorf("reading %s: %w", originFile, err)
	}
	if changes, err := git(ctx, dir, "status", "--porcelain"); err != nil {
		return err
	} else if changes != "" {
		return errors.New("the fork has changes that are not committed: commit or stash them first")
	}
	const ref = "refs/heads/" + branch
	former, missing := git(ctx, dir, "rev-parse", "--verify", "--quiet", ref)
	if missing != nil {
		// A clone has only the branch that it was made for.
		if _, err := git(ctx, dir, "branch", branch, "origin/"+branch); err != nil {
			return fmt.Errorf("there is no branch %s, and no origin has one: %w", branch, err)
		}
	}
	defer func() {
		if err == nil || errors.Is(err, errConflict) {
			return
		}
		restore := []string{"update-ref", ref, former}
		if missing != nil {
			restore = []string{"update-ref", "-d", ref}
		}
		_, failed := git(context.WithoutCancel(ctx), dir, restore...)
		err = errors.Join(err, failed)
	}()
	temp, err := os.MkdirTemp("", "fork-")
	if err != nil {
		return err
	}
	tree := filepath.Join(temp, "tree")
	defer func() {
		_, removed := git(context.WithoutCancel(ctx), dir, "worktree", "remove", "--force", tree)
		err = errors.Join(err, removed, os.RemoveAll(temp))
	}()
	// After an update that was killed, its worktree would keep the branch in use.
	for _, args := range [][]string{{"-C", dir, "worktree", "prune"}, {"-C", dir, "worktree", "add", "--quiet", tree, branch}, {"-C", tree, "rm", "-r", "--quiet", "."}} {
		if _, err := git(ctx, dir, args...); err != nil {
			return err
		}
	}
	if err := render(ctx, template, o.Answers, tree); err != nil {
		return err
	}
	if _, err := git(ctx, tree, "add", "--all"); err != nil {
		return err
	}
	if changes, err := git(ctx, tree, "status", "--porcelain"); err != nil {
		return err
	} else if changes != "" {
		if err := commit(ctx, template, tree); err != nil {
			return err
		}
	}
	if _, err := git(ctx, dir, "merge-base", "--is-ancestor", branch, "HEAD"); err == nil {
		fmt.Println("The template has not changed since the last time.")
		return nil
	}
	if _, err := git(ctx, dir, "merge", "--no-edit", branch); err != nil {
		if unmerged, diffErr := git(ctx, dir, "diff", "--name-only", "--diff-filter=U"); diffErr == nil && unmerged != "" {
			return errConflict
		}
		return err
	}
	fmt.Println("Merged. Now run `make generate` and `make check` in the fork.")
	return nil
}

// render writes the files of a fork into a directory: those of the commit that is checked
// out in the template, but for what only the template needs, under the fork's names. What
// is generated is generated again. The same commit and answers give the same bytes.
func render(ctx context.Context, template string, a Answers, dir string) error {
	head, err := git(ctx, template, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	files, err := committed(ctx, template)
	if err != nil {
		return err
	}
	if files, err = forked(files, a); err != nil {
		return err
	}
	content, err := yaml.Marshal(origin{Answers: a, Commit: head})
	if err != nil {
		return err
	}
	files = append(files, file{path: originFile, content: append([]byte("# How this repository was made. To update it, run in a later version of the template:\n# go run ./hack/fork update -dir DIRECTORY\n"), content...)})
	steps := [][]string{{"hack/update-codegen.sh"}}
	for _, f := range files {
		name := filepath.Join(dir, filepath.FromSlash(f.path))
		mode := os.FileMode(0o644)
		if f.isExecutable {
			mode = 0o755
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, f.content, mode)); err != nil {
			return err
		}
		if path.Base(f.path) == "go.mod" { // What was left out may have been the only one to need a library.
			steps = append(steps, []string{"go", "-C", path.Dir(f.path), "mod", "tidy"})
		}
	}
	for _, step := range append(steps, []string{"hack/update-manifests.sh"}) {
		fmt.Println(strings.Join(step, " "))
		command := exec.CommandContext(ctx, step[0], step[1:]...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%s in %s: %w\n%s", strings.Join(step, " "), dir, err, out)
		}
	}
	return nil
}

// forked returns the files of a fork by these answers, but for what is generated.
func forked(files []file, a Answers) ([]file, error) {
	names, err := a.Names()
	if err != nil {
		return nil, err
	}
	files = kept(files)
	r, err := renamerFor(files, template(), names)
	if err != nil {
		return nil, err
	}
	return r.all(files)
}

// ours are files and directories that only the template needs.
var ours = []string{"hack/fork", "hack/template.mk", "test/e2e/taken_test.go"}

// generated are patterns for what generators write from nothing, so that it need not be renamed.
var generated = []string{
	"pkg/generated", "pkg/apis/samplecontroller/v1alpha1/zz_generated.*.go",
	"artifacts/examples/crd-icecream.yaml", "artifacts/install.yaml", "artifacts/rbac-icecream.yaml", "artifacts/service-account.yaml",
	"charts/k8s-controller/README.md", "charts/k8s-controller/files/icecream/crd-icecream.yaml", "docs/api.md", "docs/flags.md",
	"apps/*/install.yaml", "apps/*/flags.md",
}

// kept returns the files that a fork gets as copies. It leaves out what only the template needs, and
// what is generated again.
func kept(files []file) []file {
	return slices.DeleteFunc(slices.Clone(files), func(f file) bool { return matches(ours, f.path) || matches(generated, f.path) })
}

// matches reports whether a path is, or is in, what one of the patterns names.
func matches(patterns []string, name string) bool {
	for ; name != "."; name = path.Dir(name) {
		if slices.ContainsFunc(patterns, func(pattern string) bool { ok, err := path.Match(pattern, name); return ok && err == nil }) {
			return true
		}
	}
	return false
}

// file is a file of the template or of a fork.
type file struct {
	path         string
	isExecutable bool
	content      []byte
}

// committed returns the files of the commit that is checked out in a directory.
func committed(ctx context.Context, dir string) (files []file, err error) {
	out, err := exec.CommandContext(ctx, "git", "-C", dir, "archive", "--format=tar", "HEAD^{tree}").Output()
	if err != nil {
		return nil, fmt.Errorf("git archive: %w", err)
	}
	for archive := tar.NewReader(bytes.NewReader(out)); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the files of %s: %w", dir, err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		if header.Typeflag == tar.TypeReg {
			files = append(files, file{path: header.Name, isExecutable: header.Mode&0o100 != 0, content: content})
		}
	}
}

// commit commits everything in a directory, with a message that names the template's commit.
func commit(ctx context.Context, template, dir string) error {
	message, err := git(ctx, template, "log", "-1", "--format=The template at %h of %cs")
	if err != nil {
		return err
	}
	if _, err := git(ctx, dir, "add", "--all"); err != nil {
		return err
	}
	_, err = git(ctx, dir, "commit", "--quiet", "--message", message)
	return err
}

// git runs git in a directory and returns its output. Commits of a user who has not told
// git a name get one. Nobody has written them, so they are not signed, no hook looks at
// them, and they are merged whatever the user's own merges have to be.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	settings := []string{"-c", "core.hooksPath=" + os.DevNull, "-c", "commit.gpgSign=false", "-c", "merge.ff=true", "-c", "merge.verifySignatures=false"}
	if args[0] == "commit" || args[0] == "merge" {
		if _, err := git(ctx, dir, "config", "user.email"); err != nil {
			settings = append(settings, "-c", "user.name="+branch, "-c", "user.email="+branch+"@localhost")
		}
	}
	command := exec.CommandContext(ctx, "git", append(settings, args...)...)
	command.Dir = dir
	out, err := command.Output()
	if err != nil {
		exit, _ := errors.AsType[*exec.ExitError](err)
		if exit != nil && len(exit.Stderr) > 0 {
			err = errors.New(strings.TrimSpace(string(exit.Stderr)))
		} else if len(out) > 0 {
			err = errors.New(strings.TrimSpace(string(out)))
		}
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
