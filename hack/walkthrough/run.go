package walkthrough

import (
	"os/exec"
	"testing"
)

// Run runs a command in a directory and returns its output. The test ends if it fails.
func Run(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = dir
	output, err := command.CombinedOutput()
	if err != nil {
		text := string(output)
		t.Fatalf("%q: %v\n%s", command.Args, err, text[max(0, len(text)-8000):])
	}
	return string(output)
}

// Format fails the test if Go files in a directory are not formatted.
func Format(t testing.TB, dir string, files ...string) {
	t.Helper()
	if unformatted := Run(t, dir, "gofmt", append([]string{"-l"}, files...)...); unformatted != "" {
		t.Errorf("not formatted: %s", unformatted)
	}
}
