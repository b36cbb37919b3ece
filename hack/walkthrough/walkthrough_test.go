package walkthrough

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const page = "# Page\n\n## Do it\n\n`a/b.go`:\n\n```go\npackage b\n\nvar x = 1\n```\n\nThen\n\n```diff\n package b\n \n-var x = 1\n+var x = 2\n+var y = 3\n```\n\nand\n\n```sh\nmake\n```\n\n## Next\n\n```sh\nrm\n```\n"

func TestPage(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "page.md"), []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Section(filepath.Join(dir, "page.md"), "## Undo it"); err == nil {
		t.Error("there is no such section, and no error")
	}
	section, err := Section(filepath.Join(dir, "page.md"), "## Do it")
	if err != nil {
		t.Fatal(err)
	}
	blocks := Blocks(section)
	if len(blocks) != 3 || blocks[2] != (Block{"a/b.go", "sh", "make\n"}) {
		t.Fatalf("the blocks are %q", blocks)
	}
	for _, b := range blocks[:2] {
		if err := b.Write(dir); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(filepath.Join(dir, "a", "b.go"))
	if want := "package b\n\nvar x = 2\nvar y = 3\n"; err != nil || string(got) != want {
		t.Errorf("the file is %q, want %q: %v", got, want, err)
	}
	if err := blocks[1].Write(dir); err == nil || !strings.Contains(err.Error(), "there 0 times") {
		t.Errorf("a change that was made: %v", err)
	}
}

func TestPrints(t *testing.T) {
	const output = "a (1) b\nc\n"
	for _, text := range []string{"a (1)\nc\n", "a … b\n", ""} {
		if err := Prints(output, text); err != nil {
			t.Error(err)
		}
	}
	for _, text := range []string{"c\na\n", "a … c\n", "(2)\n", "c\nc\n"} {
		if Prints(output, text) == nil {
			t.Errorf("it prints %q", text)
		}
	}
}
