package main

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Everything that is linked into a program has its license in the list.
func TestLicenses(t *testing.T) {
	t.Chdir("../..")
	binary := filepath.Join(t.TempDir(), "controller")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-w", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := run(binary, out); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Error("two runs differ")
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil || len(info.Deps) < 20 {
		t.Fatalf("the program has %d modules, %v", len(info.Deps), err)
	}
	want := []string{info.Main.Path + ": LICENSE", "Go " + strings.TrimPrefix(info.GoVersion, "go") + ": LICENSE", "Redistributions in binary form must reproduce"}
	for _, module := range info.Deps {
		want = append(want, "\n"+module.Path+" "+module.Version+": ")
	}
	for _, text := range want {
		if !strings.Contains(first.String(), text) {
			t.Errorf("there is no %q", text)
		}
	}
}

// A text that several modules have is there once, and a module without one is an error.
func TestTexts(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a/LICENSE": "one\n", "a/license.go": "package a\n", "a/sub/NOTICE.txt": "two", "a/sub/README": "three", "a/testdata/LICENSE": "four",
		"b/COPYING": "one", "c/main.go": "package c\n",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := texts{}
	for _, module := range []string{"a", "b"} {
		if err := all.add(module, filepath.Join(dir, module), true); err != nil {
			t.Error(err)
		}
	}
	var got []string
	for _, text := range all.sorted() {
		got = append(got, strings.Join(text.files, ", ")+" is "+strings.TrimSpace(text.content))
	}
	if want := "a: LICENSE, b: COPYING is one; a: sub/NOTICE.txt is two"; strings.Join(got, "; ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := all.add("c", filepath.Join(dir, "c"), true); err == nil {
		t.Error("a module without a license is no error")
	}
	if got, want := escape("github.com/NYTimes/gziphandler"), "github.com/!n!y!times/gziphandler"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
