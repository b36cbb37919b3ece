package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What cannot be done is refused before anything is written.
func TestRefused(t *testing.T) {
	occupied, empty := t.TempDir(), t.TempDir()
	write(t, occupied, "file", "")
	dirty, bare := repository(t), repository(t)
	write(t, dirty, answersFile, "answers: {}\n")
	for _, tt := range []struct {
		name, in string
		args     []string
		want     string
	}{
		{"no directory", "", []string{"-kind", "Shelf"}, "-dir is missing"},
		{"an occupied directory", "", []string{"-dir", occupied}, "there is something in it already"},
		{"a directory that is a file", "", []string{"-dir", filepath.Join(occupied, "file", "x")}, "not a directory"},
		{"a directory inside", "", []string{"-dir", "pantry"}, "inside of the template"},
		{"an unknown flag", "", []string{"-knd", "Shelf"}, "-knd"},
		{"an argument", "", []string{"-dir", empty, "Shelf"}, `"Shelf" is no flag`},
		{"an update from nowhere", "", []string{"update"}, "-from is missing"},
		{"an update of what is no repository", empty, []string{"update", "-from", "x"}, "git rev-parse"},
		{"an update of what is no fork", bare, []string{"update", "-from", "x"}, "this is no fork"},
		{"an update of a fork with changes", dirty, []string{"update", "-from", "x"}, "not committed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.in != "" {
				t.Chdir(tt.in)
			}
			err := run(t.Context(), tt.args)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, tt.want)
			}
		})
	}
	if left, err := os.ReadDir(empty); err != nil || len(left) > 0 {
		t.Errorf("%v is left: %v", left, err)
	}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// repository returns the directory of a new repository of git.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "git", "init", "--quiet", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}
