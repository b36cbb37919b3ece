package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tiny returns a template with as little as a fork takes.
func tiny(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	runIn(t, dir, "git", "init", "--quiet", "--initial-branch=main")
	insert(t, dir, "README.md", "", "# Icecreams\n")
	for _, script := range []string{"update-codegen.sh", "update-manifests.sh"} {
		insert(t, dir, "hack/"+script, "", "#!/usr/bin/env bash\n")
		if err := os.Chmod(filepath.Join(dir, "hack", script), 0o700); err != nil { //nolint:gosec // a script
			t.Fatal(err)
		}
	}
	commitAll(t, dir)
	return dir
}

// demanding makes git refuse commits without a signature or a ticket, and merges.
func demanding(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for _, hook := range []string{"pre-commit", "commit-msg", "prepare-commit-msg", "pre-merge-commit", "post-checkout"} {
		if err := os.WriteFile(filepath.Join(dir, hook), []byte("#!/usr/bin/env bash\necho no ticket >&2\nexit 1\n"), 0o700); err != nil { //nolint:gosec // a script
			t.Fatal(err)
		}
	}
	config := filepath.Join(dir, "config")
	text := fmt.Sprintf("[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = false\n[core]\n\thooksPath = %s\n[merge]\n\tff = only\n\tverifySignatures = true\n[user]\n\tuseConfigOnly = true\n", dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_CONFIG_GLOBAL", config)
}

func TestForkOfSomebodyWithDemandingGit(t *testing.T) {
	template, dir := tiny(t), filepath.Join(t.TempDir(), "fork")
	demanding(t)
	if err := create(t.Context(), template, dir, shelf()); err != nil {
		t.Fatal(err)
	}
	if got := read(t, dir, "README.md"); got != "# Shelves\n" {
		t.Errorf("the fork has %q", got)
	}
	insert(t, dir, "OURS.md", "", "Ours.\n")
	commitAll(t, dir)
	insert(t, template, "NEWS.md", "", "News.\n")
	commitAll(t, template)
	for range 2 { // the second finds nothing to do
		if err := update(t.Context(), template, dir); err != nil {
			t.Fatal(err)
		}
		if got := read(t, dir, "OURS.md") + read(t, dir, "NEWS.md"); got != "Ours.\nNews.\n" {
			t.Errorf("the fork has %q", got)
		}
	}
}

// What fails says why in git's or the generator's own words, leaves nothing behind, and works
// once the cause is gone.
func TestForkFails(t *testing.T) {
	template := tiny(t)
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	insert(t, template, "hack/update-codegen.sh", "", "echo no generator >&2; exit 1\n")
	commitAll(t, template)
	empty, missing := t.TempDir(), filepath.Join(t.TempDir(), "fork")
	for _, dir := range []string{empty, missing} {
		if err := create(t.Context(), template, dir, shelf()); err == nil || !strings.Contains(err.Error(), "no generator") {
			t.Errorf("the error is %v", err)
		}
	}
	if left, err := os.ReadDir(empty); err != nil || len(left) > 0 {
		t.Errorf("what is left of an empty directory: %v, %v", left, err)
	}
	if _, err := os.Stat(missing); !os.IsNotExist(err) {
		t.Errorf("what is left where nothing was: %v", err)
	}

	working := tiny(t)
	dir := filepath.Join(t.TempDir(), "fork")
	if err := create(t.Context(), working, dir, shelf()); err != nil {
		t.Fatal(err)
	}
	before := runIn(t, dir, "git", "for-each-ref")
	fails := func(template, words string) {
		t.Helper()
		if err := update(t.Context(), template, dir); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("the error is %v, want %q", err, words)
		}
		if after := runIn(t, dir, "git", "for-each-ref") + runIn(t, dir, "git", "status", "--porcelain"); after != before {
			t.Errorf("before the update\n%s\nand after it\n%s", before, after)
		}
		if trees := runIn(t, dir, "git", "worktree", "list"); strings.Contains(trees, "\n") {
			t.Errorf("worktrees are left:\n%s", trees)
		}
	}
	fails(template, "no generator")
	insert(t, working, "NEWS.md", "", "News.\n")
	commitAll(t, working)
	lock := filepath.Join(dir, ".git", "index.lock")
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fails(working, "index.lock")
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	if err := update(t.Context(), working, dir); err != nil || read(t, dir, "NEWS.md") != "News.\n" {
		t.Errorf("once nothing is in the way: %v", err)
	}
}
