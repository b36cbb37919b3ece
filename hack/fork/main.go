// Command fork makes a repository of one's own from this one, with names of one's own,
// and brings it the changes of later versions by a merge.
//
//	go run ./hack/fork -module example.com/pantry -group pantry.example.com -version v1alpha1 -kind Shelf -dir ../pantry
//
// makes the repository ../pantry. Its branch template has one commit, which is what this
// command has written, and its branch main begins there. In that repository,
//
//	go run ./hack/fork update -from DIR
//
// commits to the branch template what a later version, checked out in DIR, writes for the
// same answers, and merges that into the current branch.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
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
	if len(args) > 0 && args[0] == "update" {
		flags := flag.NewFlagSet("fork update", flag.ContinueOnError)
		from := flags.String("from", "", "Checkout of a later version of the template.")
		if err := parse(flags, args[1:]); err != nil {
			return err
		}
		return update(ctx, ".", *from)
	}
	flags := flag.NewFlagSet("fork", flag.ContinueOnError)
	dir := flags.String("dir", "", "Directory of the new repository. It must not exist, or be empty.")
	// Only the command that writes the files knows what the answers mean.
	answers := map[string]any{}
	for name, usage := range map[string]string{
		"module":  "Path of the Go module, such as example.com/pantry.",
		"group":   "Group of the API, such as pantry.example.com.",
		"version": "Version of the API, such as v1alpha1.",
		"kind":    "Kind of the API, such as Shelf.",
		"plural":  "Plural of the kind in lower case, such as shelves. Default: the kind's regular English plural.",
		"short":   "Short name for kubectl, such as sh. Default: made from the kind.",
	} {
		flags.Func(name, usage, func(value string) error {
			answers[name] = value
			return nil
		})
	}
	flags.Func("controllers", "Comma-separated list of the opt-in controllers that come along. Default: none.", func(value string) error {
		answers["controllers"] = strings.FieldsFunc(value, func(r rune) bool { return r == ',' })
		return nil
	})
	if err := parse(flags, args); err != nil {
		return err
	}
	return create(ctx, ".", *dir, answers)
}

func parse(flags *flag.FlagSet, args []string) error {
	flags.SetOutput(io.Discard)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return err
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("%q is no flag", flags.Arg(0))
	}
	return nil
}

const (
	// answersFile is where a fork keeps how it was made. The command that writes the files
	// of a fork reads it, and writes it with them.
	answersFile = ".template.yaml"
	// branch has what was written, version by version, and nothing else.
	branch = "template"
)

// create makes a repository from the template that is checked out.
func create(ctx context.Context, template, dir string, answers map[string]any) (err error) {
	if dir == "" {
		return errors.New("-dir is missing: where is the new repository to be?")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("-dir %q: there is something in it already", dir)
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("-dir %q: %w", dir, err)
	}
	root, err := output(ctx, template, "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if inside, err := filepath.Rel(root, dir); err != nil || !strings.HasPrefix(inside, "..") {
		return fmt.Errorf("-dir %q: it is inside of the template", dir)
	}
	if changes, err := output(ctx, root, "status", "--porcelain"); err != nil {
		return err
	} else if changes != "" {
		fmt.Println("Changes that are not committed here will not be in it.")
	}
	temp, err := os.MkdirTemp("", "fork-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	content, err := json.Marshal(map[string]any{"answers": answers})
	if err != nil {
		return err
	}
	file := filepath.Join(temp, answersFile)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return err
	}
	if err := render(ctx, root, file, dir); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch", branch},
		{"add", "--all"},
		{"commit", "--quiet", "--message", message(ctx, root)},
		{"checkout", "--quiet", "-b", "main"},
	} {
		if err := git(ctx, dir, args...); err != nil {
			return err
		}
	}
	fmt.Printf("%s is ready. There, `make demo` shows it at work, and `make test` tests it.\n", dir)
	return nil
}

// update brings a fork the changes of the template that is checked out in another
// directory.
func update(ctx context.Context, fork, from string) (err error) {
	if from == "" {
		return errors.New("-from is missing: where is the later version checked out?")
	}
	if from, err = filepath.Abs(from); err != nil {
		return err
	}
	root, err := output(ctx, fork, "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	answers := filepath.Join(root, answersFile)
	if _, err := os.Stat(answers); err != nil {
		return fmt.Errorf("this is no fork: %w", err)
	}
	switch changes, err := output(ctx, root, "status", "--porcelain"); {
	case err != nil:
		return err
	case changes != "":
		return errors.New("there are changes that are not committed: commit or stash them first")
	}
	if _, err := output(ctx, root, "rev-parse", "--verify", "--quiet", "refs/heads/"+branch); err != nil {
		// A clone has only the branch that it was made for.
		if err := git(ctx, root, "branch", branch, "origin/"+branch); err != nil {
			return fmt.Errorf("there is no branch %s, and no origin has one: %w", branch, err)
		}
	}
	temp, err := os.MkdirTemp("", "fork-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	rendered, tree := filepath.Join(temp, "rendered"), filepath.Join(temp, "tree")
	if err := render(ctx, from, answers, rendered); err != nil {
		return err
	}
	// One that was killed before it could remove its tree keeps the branch in use.
	if err := git(ctx, root, "worktree", "prune"); err != nil {
		return err
	}
	if err := git(ctx, root, "worktree", "add", "--quiet", tree, branch); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, git(context.WithoutCancel(ctx), root, "worktree", "remove", "--force", tree))
	}()
	if err := git(ctx, tree, "rm", "-r", "--quiet", "."); err != nil {
		return err
	}
	if err := os.CopyFS(tree, os.DirFS(rendered)); err != nil {
		return err
	}
	if err := git(ctx, tree, "add", "--all"); err != nil {
		return err
	}
	if _, err := output(ctx, tree, "diff", "--cached", "--quiet"); err == nil {
		fmt.Println("The template has not changed since the last time.")
		return nil
	}
	if err := git(ctx, tree, "commit", "--quiet", "--message", message(ctx, from)); err != nil {
		return err
	}
	if err := git(ctx, root, "merge", "--no-edit", branch); err != nil {
		return errors.New("both sides have changed the same lines: resolve that, run `make generate`, and commit the merge")
	}
	fmt.Println("Merged. Now run `make generate` and `make check`.")
	return nil
}

// render has the template that is checked out write the files that follow from a file of
// answers into a directory.
func render(ctx context.Context, template, answers, dir string) error {
	if _, err := os.Stat(filepath.Join(template, "hack", "fork", "render")); err != nil {
		return fmt.Errorf("%s is no checkout of the template; if it is a fork, use what it was made from", template)
	}
	command := exec.CommandContext(ctx, "go", "run", "-C", template, "./hack/fork/render", "-answers="+answers, "-dir="+dir)
	var stderr strings.Builder
	command.Stdout, command.Stderr = os.Stdout, &stderr
	if err := command.Run(); err != nil {
		// go run adds a line of its own, with the exit status.
		return errors.New(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(stderr.String()), "exit status 1")))
	}
	return nil
}

// message is that of a commit to the branch template.
func message(ctx context.Context, template string) string {
	commit, err := output(ctx, template, "log", "-1", "--format=%h of %cs")
	if err != nil {
		return "The template"
	}
	return "The template at " + commit
}

// git runs git in a directory. Somebody who has not told git a name yet gets one.
func git(ctx context.Context, dir string, args ...string) error {
	if args[0] == "commit" || args[0] == "merge" {
		if _, err := output(ctx, dir, "config", "user.email"); err != nil {
			args = append([]string{"-c", "user.name=" + branch, "-c", "user.email=" + branch + "@localhost"}, args...)
		}
	}
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir, command.Stdout, command.Stderr = dir, os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// output returns what git prints, without the end of the line.
func output(ctx context.Context, dir string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir = dir
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
