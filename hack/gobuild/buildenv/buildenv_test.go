package buildenv

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	got, err := parse("# flags\nA='1'\n\nB='-x -y=all=-z'\n")
	if diff := cmp.Diff([]string{"A=1", "B=-x -y=all=-z"}, got); err != nil || diff != "" {
		t.Errorf("error %v, difference (-want +got):\n%s", err, diff)
	}
	for _, line := range []string{"A=1", "A='1", "A='1' B='2'", "export A='1'", "='1'", "A"} {
		if got, err := parse(line); err == nil {
			t.Errorf("%q is read as %q", line, got)
		}
	}
}

// A shell that sources the file must see what Read returns.
func TestShellReadsTheSame(t *testing.T) {
	variables, err := Read("../../..")
	if err != nil || len(variables) == 0 {
		t.Fatalf("%q, %v", variables, err)
	}
	for _, variable := range variables {
		name, want, _ := strings.Cut(variable, "=")
		got, err := exec.CommandContext(t.Context(), "bash", "-c", `. ../../build.env && printf %s "${!0}"`, name).Output()
		if err != nil || string(got) != want {
			t.Errorf("%s is %q in a shell, %v; want %q", name, got, err, want)
		}
	}
}
