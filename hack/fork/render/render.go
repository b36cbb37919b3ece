package main

import (
	"cmp"
	"fmt"
	"go/format"
	"path"
	"slices"
	"strings"
)

// file is a file of a tree.
type file struct {
	path         string
	isExecutable bool
	content      []byte
}

// verbatim are files that no name is changed in: their content is fixed by others.
var verbatim = []string{"LICENSE", "go.sum"}

// engine are the directories that know no API of this repository. They refer to each other
// by the module's path, which is the only name that is changed in them.
var engine = []string{"pkg/kit", "pkg/kittest", "hack/local-cluster"}

func isEngine(name string) bool {
	return slices.ContainsFunc(engine, func(dir string) bool { return strings.HasPrefix(name, dir+"/") })
}

func isGo(name string) bool { return path.Ext(name) == ".go" }

// all returns the files under their new names, sorted by path.
func (r *renamer) all(files []file) ([]file, error) {
	renamed := make([]file, 0, len(files))
	for _, f := range files {
		var err error
		switch {
		case slices.Contains(verbatim, path.Base(f.path)):
		case isEngine(f.path):
			f.content = []byte(strings.ReplaceAll(string(f.content), r.from.Module, r.to.Module))
		case isGo(f.path):
			f.content, err = r.Go(f.path, f.content)
			f.path = r.Text(f.path)
		default:
			f.content = []byte(r.Text(string(f.content)))
			f.path = r.Text(f.path)
		}
		if err == nil && isGo(f.path) {
			f.content, err = format.Source(f.content) // at least the order of imports has changed
		}
		if err != nil {
			return nil, fmt.Errorf("renaming in %s: %w", f.path, err)
		}
		renamed = append(renamed, f)
	}
	slices.SortFunc(renamed, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	for i := 1; i < len(renamed); i++ {
		if renamed[i].path == renamed[i-1].path {
			return nil, fmt.Errorf("two files would be named %s: choose another -kind", renamed[i].path)
		}
	}
	return renamed, nil
}
