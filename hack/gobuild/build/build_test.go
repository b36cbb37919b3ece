package build

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestBuild(t *testing.T) {
	for _, test := range []struct{ name, source, wantErr, wantProgress string }{
		{name: "a program", source: "package main\n\nfunc main() { println() }\n", wantProgress: "building it: done after "},
		{name: "an error", source: "package main\n\nfunc main() { missing() }\n", wantErr: "undefined: missing"},
		{name: "an import of nothing", source: "package main\n\nimport _ \"example/nothing\"\n\nfunc main() {}\n", wantErr: "example/nothing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range map[string]string{"go.mod": "module example\n\ngo 1.26\n", "main.go": test.source} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var progress bytes.Buffer
			output := filepath.Join(dir, "program")
			err := Build{Title: "it", Dir: dir, Env: []string{"GOWORK=off", "GOFLAGS="}, Flags: []string{"-o", output}, Packages: []string{"."}}.Run(t.Context(), &progress)
			if (err == nil) != (test.wantErr == "") || err != nil && !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("got error %v, want %q", err, test.wantErr)
			}
			if !strings.HasPrefix(progress.String(), "building it: looking for what is compiled\n") || !strings.Contains(progress.String(), test.wantProgress) {
				t.Errorf("progress:\n%s", &progress)
			}
			if _, statErr := os.Stat(output); (statErr == nil) != (test.wantErr == "") {
				t.Errorf("the program: %v", statErr)
			}
		})
	}
}

// A shell that sources the file must see what Env returns.
func TestShellReadsTheSame(t *testing.T) {
	variables, err := Env("../../..")
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
