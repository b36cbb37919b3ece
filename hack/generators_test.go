package hack

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A generator that fails leaves the tree as it was.
func TestGeneratorsThatFail(t *testing.T) {
	clone := filepath.Join(t.TempDir(), "clone")
	run := func(dir, name string, args ...string) (string, error) {
		command := exec.CommandContext(t.Context(), name, args...)
		command.Dir = dir
		output, err := command.CombinedOutput()
		return string(output), err
	}
	if output, err := run("..", "git", "clone", "--quiet", ".", clone); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, file := range []string{"build.env", "tool.sh", "update-codegen.sh"} { // those of the working tree
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(clone, "hack", file), content, 0o700); err != nil { //nolint:gosec // scripts are executable
			t.Fatal(err)
		}
	}
	types, err := filepath.Glob(filepath.Join(clone, "pkg", "apis", "*", "*", "types.go"))
	if err != nil || len(types) != 1 {
		t.Fatalf("%q, %v", types, err)
	}
	content, err := os.ReadFile(types[0])
	if err != nil {
		t.Fatal(err)
	}
	// The clientset follows from this, the CustomResourceDefinition does not.
	content = bytes.Replace(content, []byte("Spec struct {\n"), []byte("Spec struct {\n\t// +kubebuilder:validation:Maximum=much\n\tBroken int32 `json:\"broken\"`\n\n"), 1)
	if err := os.WriteFile(types[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := run(clone, "git", "status", "--porcelain")
	if err != nil {
		t.Fatal(err)
	}
	if output, err := run(clone, "hack/update-codegen.sh"); err == nil {
		t.Errorf("a marker that is none is no error:\n%s", output)
	}
	if after, err := run(clone, "git", "status", "--porcelain"); err != nil || after != before {
		t.Errorf("%v: changed before\n%s\nand after\n%s", err, before, after)
	}
}
