package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "nicoleh.io/k8s-controller"

// A controller imports the kit and API types, but no other controller. (That the kit
// imports neither is a rule of the linter.)
func TestNoControllerImportsAnother(t *testing.T) {
	for _, c := range newProgram().Controllers {
		own, sources := "pkg/"+c.Name, []string(nil)
		if c.Name == "icecream" {
			own, sources = "pkg/icecream", []string{"controller.go"}
		}
		sources = append(sources, goFiles(t, own)...)
		if len(sources) == 0 {
			t.Errorf("there is no source of %s in %s", c.Name, own)
		}
		for _, source := range sources {
			for _, imported := range importsOf(t, source) {
				if !isBelow(imported, own, "pkg/apis", "pkg/generated", "pkg/kit") {
					t.Errorf("%s imports %s, but a controller imports only pkg/kit, API types and its own packages", source, imported)
				}
			}
		}
	}
}

// goFiles returns the Go files in a directory and below it.
func goFiles(t *testing.T, dir string) (files []string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".go") {
			files = append(files, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return files
}

// importsOf returns which packages of this repository a file imports, relative to its root.
func importsOf(t *testing.T, file string) (imports []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range parsed.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if path, isOurs := strings.CutPrefix(path, module+"/"); isOurs {
			imports = append(imports, path)
		}
	}
	return imports
}

// isBelow reports whether a package is one of these, or in a directory below one of them.
func isBelow(path string, dirs ...string) bool {
	for _, dir := range dirs {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}
