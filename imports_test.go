package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Each controller can be left out, because no other imports it.
func TestNoControllerImportsAnother(t *testing.T) {
	descriptors, err := filepath.Glob("pkg/*/controller.go")
	if err != nil {
		t.Fatal(err)
	}
	var controllers []string
	for _, path := range append(descriptors, "pkg/icecream/") {
		controllers = append(controllers, filepath.Dir(path))
	}
	imports := 0
	for _, of := range controllers {
		err := filepath.WalkDir(of, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, spec := range file.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return err
				}
				imports++
				isOf := func(controller string) bool { return strings.Contains(imported+"/", "/"+controller+"/") }
				if i := slices.IndexFunc(controllers, isOf); i >= 0 && controllers[i] != of {
					t.Errorf("%s imports %s", path, imported)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if imports == 0 {
		t.Error("there are no imports")
	}
}
