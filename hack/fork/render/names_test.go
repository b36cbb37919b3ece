package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"sigs.k8s.io/yaml"
)

// testdata/names.txt shows what follows from answers, and which are refused.
func TestNames(t *testing.T) {
	datadriven.RunTest(t, "testdata/names.txt", func(t *testing.T, d *datadriven.TestData) string {
		a := shelf()
		if err := yaml.UnmarshalStrict([]byte(d.Input), &a); err != nil {
			d.Fatalf(t, "%v", err)
		}
		names, err := a.Names()
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
			return "refused: " + err.Error()
		}
		text, err := yaml.Marshal(names)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		var out strings.Builder
		before, err := shelf().Names()
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		usual, err := yaml.Marshal(before)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		for line := range strings.Lines(string(text)) {
			if d.Cmd == "all" || !strings.Contains(string(usual), line) {
				fmt.Fprint(&out, line)
			}
		}
		return out.String()
	})
}

// shelf returns the answers from which the table's differ.
func shelf() Answers {
	return Answers{Module: "example.com/pantry", Group: "pantry.example.com", Version: "v1alpha1", Kind: "Shelf", Plural: "shelves", Short: "sh"}
}

// Without -plural, a kind has its regular English plural.
func TestPlurals(t *testing.T) {
	for kind, want := range map[string]string{
		"Gateway": "gateways", "Box": "boxes", "Mesh": "meshes", "NetSwitch": "netswitches", "Index": "indices",
		"Quiz": "quizzes", "IceShelf": "iceshelves", "Policy": "policies", "Ingress": "ingresses", "CronJob": "cronjobs",
	} {
		a := shelf()
		a.Kind, a.Plural, a.Short = kind, "", ""
		names, err := a.Names()
		if err != nil || names.Plural() != want {
			t.Errorf("%s: got %q (%v), want %q", kind, names.Plural(), err, want)
		}
	}
}

// What collides is known only once the code has been read.
func TestCollisions(t *testing.T) {
	source, err := sourceFor(repository(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ kind, plural, want string }{
		{"Context", "", "imported"},
		{"Errors", "errorses", "imported"},
		{"Worker", "", "imported"},
		{"Time", "", "imported"},
		{"Pod", "", "which means something else"},
	} {
		a := shelf()
		a.Kind, a.Plural, a.Short = tt.kind, tt.plural, ""
		_, err := source.fork(kept{Answers: a})
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("-kind %s: got %v, want one line with %q", tt.kind, err, tt.want)
		}
	}
}

// A manifest that does not fit the files any more must not go unnoticed.
func TestManifestFits(t *testing.T) {
	files := repository(t)
	m, err := readManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, controllers := range [][]string{nil, {"podtimestamp"}, {"secretsync"}, {"nodereboot"}, {"podtimestamp", "secretsync", "nodereboot"}} {
		if _, err := m.leaveOut(files, controllers); err != nil {
			t.Errorf("%v: %v", controllers, err)
		}
	}
	if _, err := m.leaveOut(files, []string{"nosuch"}); err == nil || !strings.Contains(err.Error(), "podtimestamp") {
		t.Errorf("a controller that does not exist: got %v, want a list of those that do", err)
	}
	for i, f := range files {
		if f.path == "main.go" {
			files[i].content = []byte("package main\n")
		}
	}
	if _, err := m.leaveOut(files, nil); err == nil || !strings.Contains(err.Error(), "main.go") {
		t.Errorf("without what is to be left out: got %v, want an error that names main.go", err)
	}
}
