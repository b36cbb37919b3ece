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
	usual := text(t, shelf())
	datadriven.RunTest(t, "testdata/names.txt", func(t *testing.T, d *datadriven.TestData) string {
		a := shelf()
		if err := yaml.UnmarshalStrict([]byte(d.Input), &a); err != nil {
			d.Fatalf(t, "%v", err)
		}
		if _, err := a.Names(); err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
			return "refused: " + err.Error()
		}
		var out strings.Builder
		for line := range strings.Lines(text(t, a)) {
			if d.Cmd == "all" || !strings.Contains(usual, line) {
				fmt.Fprint(&out, line)
			}
		}
		return out.String()
	})
}

func text(t *testing.T, a Answers) string {
	t.Helper()
	names, err := a.Names()
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// shelf returns the usual answers.
func shelf() Answers {
	return Answers{Module: "example.com/pantry", Group: "pantry.example.com", Version: "v1alpha1", Kind: "Shelf", Plural: "shelves", Short: "sh"}
}

// Without -plural, a kind has its regular English plural.
func TestPlurals(t *testing.T) {
	for kind, want := range map[string]string{
		"Gateway": "gateways", "Box": "boxes", "Mesh": "meshes", "NetSwitch": "netswitches", "Index": "indices",
		"Quiz": "quizzes", "IceShelf": "iceshelves", "Policy": "policies", "Dress": "dresses", "IceJob": "icejobs",
	} {
		a := shelf()
		a.Kind, a.Plural, a.Short = kind, "", ""
		names, err := a.Names()
		if err != nil || names.Plural() != want {
			t.Errorf("%s: got %q (%v), want %q", kind, names.Plural(), err, want)
		}
	}
}
