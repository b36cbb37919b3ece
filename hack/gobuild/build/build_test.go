package build

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestProgressFromTheFirstLine(t *testing.T) {
	now := time.Unix(0, 0)
	m := &meter{title: "it", now: func() time.Time { return now }, started: now, planned: now}
	if got, want := m.summary(), "building it: listing its packages"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	m.plan = &plan{total: 1000, packages: map[string]*packageToBuild{
		"runtime":      {size: 100},
		"k8s.io/api":   {size: 500, imports: []string{"runtime"}},
		"example/main": {size: 400, imports: []string{"k8s.io/api", "runtime"}}, // the former is in the cache
	}}
	steps := []struct {
		name, output, want string
		after              time.Duration
	}{
		{name: "before anything is compiled", want: "building it: 0%, 0 of 3 packages, 0s; at most 0s left"},
		{name: "the first package has only begun", output: "runtime\nk8s.io/", want: "building it: 0%, 0 of 3 packages, 0s; at most 0s left"},
		{name: "one is done", output: "api\n", after: 60 * time.Second, want: "building it: 10%, 1 of 3 packages, 1m0s; at most 9 min left"},
		{name: "only the program itself is left", output: "example/main\n", after: 60 * time.Second, want: "building it: linking, 2m0s"},
	}
	for _, step := range steps {
		now = now.Add(step.after)
		if _, err := m.Write([]byte(step.output)); err != nil {
			t.Fatal(err)
		}
		if got := m.summary(); got != step.want {
			t.Errorf("%s:\ngot  %q\nwant %q", step.name, got, step.want)
		}
	}
	m.succeed()
	if got, want := m.summary(), "building it: done in 2m0s"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestTailLeavesOutPackages(t *testing.T) {
	m := newMeter(&bytes.Buffer{}, "it")
	defer m.Close()
	for _, piece := range []string{"internal/goarch\nk8s.io/", "api/core/v1\n# k8s.io/api/apps/v1\n", "x.go:1:2: no\n"} {
		if _, err := m.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := m.Tail(5), "# k8s.io/api/apps/v1\nx.go:1:2: no"; got != want {
		t.Errorf("tail %q, want %q", got, want)
	}
	if got, want := m.Tail(1), "x.go:1:2: no"; got != want {
		t.Errorf("short tail %q, want %q", got, want)
	}
}

func TestBuild(t *testing.T) {
	for _, test := range []struct{ name, source, wantErr, wantProgress string }{
		{name: "a program", source: "package main\n\nfunc main() { println() }\n", wantProgress: "building it: done in "},
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
			if !strings.HasPrefix(progress.String(), "building it: listing its packages\n") || !strings.Contains(progress.String(), test.wantProgress) {
				t.Errorf("progress:\n%s", &progress)
			}
			if _, statErr := os.Stat(output); (statErr == nil) != (test.wantErr == "") {
				t.Errorf("the program: %v", statErr)
			}
		})
	}
}
