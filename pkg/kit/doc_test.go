package kit

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The map in doc.go lists exactly the packages that exist, and each of them has a package
// comment.
func TestMap(t *testing.T) {
	var listed []string
	for _, line := range regexp.MustCompile(`(?m)^//   - ([a-z/]+): `).FindAllStringSubmatch(read(t, "doc.go"), -1) {
		listed = append(listed, line[1])
	}
	packages := packagesIn(t, ".")
	slices.Sort(listed)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(packages)), listed); diff != "" {
		t.Errorf("doc.go lists other packages than there are (-there are +listed):\n%s", diff)
	}
	for name, files := range packages {
		t.Run(name, func(t *testing.T) {
			purpose := ""
			for name, file := range files {
				if !strings.HasSuffix(name, "_test.go") && file.Doc != nil {
					purpose = new(doc.Package).Synopsis(file.Doc.Text())
				}
			}
			if begin := "Package " + path.Base(name) + " "; !strings.HasPrefix(purpose, begin) {
				t.Errorf("the package comment begins with %q, want a sentence that begins with %q", purpose, begin)
			}
		})
	}
}

// packagesIn returns the files of each package in a directory and below, by the
// package's path.
func packagesIn(t *testing.T, root string) map[string]map[string]*ast.File {
	t.Helper()
	packages := map[string]map[string]*ast.File{}
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		name := filepath.ToSlash(filepath.Dir(path))
		if err != nil || filepath.Ext(path) != ".go" || name == "." {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if packages[name] == nil {
			packages[name] = map[string]*ast.File{}
		}
		packages[name][path] = file
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
