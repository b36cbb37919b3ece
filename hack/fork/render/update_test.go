package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var updated = flag.Bool("updated", false, "test updates of a fork")

// edits are twenty edits as the author of Shelves makes them. Each has a file and
// what takes the place of what; without the latter it is a new file.
var edits = []struct{ file, old, text string }{
	{"README.md", "# ", "# Shelves: "},
	{"README.md", "## License", "## Who we are\n\nThe pantry team.\n\n## License"},
	{"README.md", "| look up a field |", "| look up a field of a Shelf |"},
	// A field of the spec, and one of the status.
	{"pkg/apis/pantry/v1alpha1/types.go", "// ShelfResources are the", "// ShelfColor is a color.\n// +kubebuilder:validation:Enum=red;blue\ntype ShelfColor string\n\n// ShelfResources are the"},
	{"pkg/apis/pantry/v1alpha1/types.go", "	// replicas is the desired number of Pods.", "	// color is what the Pods are annotated with.\n	// +optional\n	Color ShelfColor `json:\"color,omitempty\"`\n\n	// replicas is the desired number of Pods."},
	{"pkg/apis/pantry/v1alpha1/types.go", "	// placement is a short summary", "	// color is the color that was asked for.\n	// +optional\n	Color ShelfColor `json:\"color,omitempty\"`\n\n	// placement is a short summary"},
	// What follows from them.
	{"pkg/shelf/color.go", "", "package shelf\n\nimport \"example.com/pantry/pkg/apis/pantry/v1alpha1\"\n\n// annotations returns what the Pods of a Shelf are annotated with.\nfunc annotations(sh *v1alpha1.Shelf) map[string]string {\n	all := map[string]string{AnnotationSpecHash: specHash(sh.Spec)}\n	if sh.Spec.Color != \"\" {\n		all[\"example.com/color\"] = string(sh.Spec.Color)\n	}\n	return all\n}\n"},
	{"pkg/shelf/color_test.go", "", "package shelf\n\nimport (\n	\"testing\"\n\n	\"example.com/pantry/pkg/apis/pantry/v1alpha1\"\n)\n\nfunc TestColor(t *testing.T) {\n	sh := &v1alpha1.Shelf{Spec: v1alpha1.ShelfSpec{Color: \"red\"}}\n	if got := annotations(sh)[\"example.com/color\"]; got != \"red\" {\n		t.Errorf(\"got %q\", got)\n	}\n}\n"},
	{"pkg/shelf/deployment.go", "map[string]string{AnnotationSpecHash: specHash(sh.Spec)}", "annotations(sh)"},
	{"pkg/shelf/deployment.go", "	security := orNew(&template.Spec.SecurityContext)", "	template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)\n	security := orNew(&template.Spec.SecurityContext)"},
	// Decisions.
	{"pkg/shelf/decide.go", "	if o.Undecodable != \"\" {", "	if reason := o.Undecodable; reason != \"\" {"},
	{"pkg/shelf/decide.go", "\"The spec cannot be decoded: \" + o.Undecodable}", "\"The spec cannot be decoded: \" + reason}"},
	{"pkg/shelf/decide.go", "	old := o.replaced()", "	// Shelves are never in a hurry.\n	old := o.replaced()"},
	// The controller, which imports the package that the update renames.
	{"controller.go", "const podPeriod = 100 * time.Millisecond", "const podPeriod = 200 * time.Millisecond"},
	{"main.go", "// NewDescriptor returns what a process needs to know to run the Shelf controller.", "// NewDescriptor returns what a process needs to know about Shelves."},
	{"docs/using.md", "# ", "# About shelves: "},
	{"CONTRIBUTING.md", "# ", "# The pantry team: "},
	{"artifacts/examples/example-shelf.yaml", "  replicas: 1", "  replicas: 2\n  color: red"},
	{"charts/pantry/values.yaml", "replicas: 2", "replicas: 3"},
	{"Makefile", ".DEFAULT_GOAL := help", ".DEFAULT_GOAL := help\nCOLOR := red"},
}

// testUpdate tests updates of a fork of the template that is checked out in a directory.
//
// A fork that was edited takes an update that renames a package of the kit and changes
// the version of a generator, and works. A further update conflicts in the one file in
// which both sides have changed the same line, and nowhere else.
func testUpdate(t *testing.T, template, dir string) {
	t.Helper()
	for _, e := range edits {
		edit := func(text string) string {
			if e.old != "" && !strings.Contains(text, e.old) {
				t.Fatalf("%s has no %q", e.file, e.old)
			}
			return strings.Replace(text, e.old, e.text, 1)
		}
		change(t, dir, e.file, edit)
	}
	runIn(t, dir, "make", "generate")
	runIn(t, dir, "go", "test", "-vet=off", "./pkg/shelf", "-run=TestBuiltDeployments", "-update")
	commit(t, dir, "Colors")

	// The kit's backoff becomes calm, and the generator of the chart's README another
	// version.
	runIn(t, template, "git", "mv", "pkg/kit/backoff", "pkg/kit/calm")
	runIn(t, template, "git", "mv", "pkg/kit/calm/backoff.go", "pkg/kit/calm/calm.go")
	for file := range strings.FieldsSeq(runIn(t, template, "git", "grep", "-lw", "backoff", "*.go", "*.md", ".golangci.yaml")) {
		change(t, template, file, func(text string) string { return strings.ReplaceAll(text, "backoff", "calm") })
	}
	runIn(t, template, "gofmt", "-w", "pkg/kit", "controller.go")
	runIn(t, filepath.Join(template, "hack", "tools"), "go", "get", "github.com/norwoodj/helm-docs@v1.11.3")
	runIn(t, filepath.Join(template, "hack", "tools"), "go", "mod", "tidy")
	commit(t, template, "A better kit")
	runIn(t, dir, "go", "run", "./hack/fork", "update", "-from", template)
	if changes := runIn(t, dir, "git", "status", "--porcelain"); changes != "" {
		t.Errorf("after the merge there are changes:\n%s", changes)
	}
	for _, e := range edits {
		if !strings.Contains(read(t, dir, e.file), e.text) {
			t.Errorf("after the merge, %s has no %q any more", e.file, e.text)
		}
	}
	runIn(t, dir, "make", "generate")
	for file, text := range map[string]string{
		"hack/tools/go.mod":                                             "github.com/norwoodj/helm-docs v1.11.3",
		"artifacts/examples/crd-shelf.yaml":                             "color:",
		"charts/pantry/README.md":                                       "| replicas | int | `3` |",
		"controller.go":                                                 "example.com/pantry/pkg/kit/calm",
		"pkg/kit/calm/calm.go":                                          "package calm",
		"charts/pantry/files/dashboard.json":                            "Shelves",
		"pkg/apis/pantry/v1alpha1/types.go":                             "Color ShelfColor",
		"pkg/generated/applyconfiguration/pantry/v1alpha1/shelfspec.go": "WithColor",
	} {
		if !strings.Contains(read(t, dir, file), text) {
			t.Errorf("after the update, %s has no %q", file, text)
		}
	}
	if changes := runIn(t, dir, "git", "status", "--porcelain"); changes != "" {
		t.Logf("generating has changed:\n%s", changes)
		commit(t, dir, "Generated")
	}
	runIn(t, dir, "go", "vet", ".", "./pkg/...")
	runIn(t, dir, "go", "test", "-vet=off", ".")
	runIn(t, dir, "go", "test", "-vet=off", "./pkg/shelf/...", "./pkg/kit/calm/...")

	// An update again brings nothing.
	if said := runIn(t, dir, "go", "run", "./hack/fork", "update", "-from", template); !strings.Contains(said, "has not changed") {
		t.Errorf("a second update from the same commit says %q", said)
	}

	// Both change the same line, and the template another file as well.
	change(t, template, "controller.go", func(text string) string {
		return strings.Replace(text, "podPeriod = 100 *", "podPeriod = 150 *", 1)
	})
	change(t, template, "docs/concepts.md", func(text string) string { return text + "\nOne more line.\n" })
	commit(t, template, "A longer period for Pods")
	if _, err := try(t, dir, "go", "run", "./hack/fork", "update", "-from", template); err == nil || !strings.Contains(err.Error(), "both sides have changed the same lines") {
		t.Errorf("both sides have changed a line, and the update says: %v", err)
	}
	if conflicts := runIn(t, dir, "git", "diff", "--name-only", "--diff-filter=U"); conflicts != "controller.go" {
		t.Errorf("conflicts in %q, want one in controller.go", conflicts)
	}
	if !strings.HasSuffix(read(t, dir, "docs/concepts.md"), "\nOne more line.\n") {
		t.Error("what is not in conflict was not merged")
	}
}

func change(t *testing.T, dir, file string, edit func(text string) string) {
	t.Helper()
	path := filepath.Join(dir, file)
	content, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(edit(string(content))), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir, file string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
