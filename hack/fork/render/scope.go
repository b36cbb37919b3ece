package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

// A scope knows the names that Go files declare, each with a file that does. A new name
// that is none of them cannot be taken for something else.
type scope struct {
	names   map[string]string // of anything, from packages to fields
	imports map[string]string // of packages
}

// declared returns what the Go files outside of the engine declare.
func declared(files []file) (*scope, error) {
	s := &scope{names: map[string]string{}, imports: map[string]string{}}
	for _, f := range files {
		if !isGo(f.path) || isEngine(f.path) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.path, f.content, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, spec := range parsed.Imports {
			name := importName(spec)
			s.names[name], s.imports[name] = f.path, f.path
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				s.add(f.path, n.Name)
			case *ast.Field: // of a type, or a parameter
				s.add(f.path, n.Names...)
			case *ast.TypeSpec:
				s.add(f.path, n.Name)
			case *ast.ValueSpec:
				s.add(f.path, n.Names...)
			case *ast.AssignStmt:
				if n.Tok == token.DEFINE {
					s.addExpr(f.path, n.Lhs...)
				}
			case *ast.RangeStmt:
				s.addExpr(f.path, n.Key, n.Value)
			}
			return true
		})
	}
	return s, nil
}

func (s *scope) add(where string, names ...*ast.Ident) {
	for _, name := range names {
		if s.names[name.Name] == "" {
			s.names[name.Name] = where
		}
	}
}

func (s *scope) addExpr(where string, exprs ...ast.Expr) {
	for _, e := range exprs {
		if name, ok := e.(*ast.Ident); ok {
			s.add(where, name)
		}
	}
}

// importName returns the name by which a file knows a package that it imports.
func importName(spec *ast.ImportSpec) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	name := strings.Trim(spec.Path.Value, `"`)
	if prefix, _, ok := module.SplitPathVersion(name); ok {
		name = prefix
	}
	return path.Base(name)
}

// renamer returns a renamer for the files, or an error if a new name is one that means
// something else already.
func (s *scope) renamer(from, to Names) (*renamer, error) {
	to.API, to.Package = s.apiFor(to), s.packageFor(from, to)
	r := newRenamer(from, to, s.variableFor(to))
	if where := s.imports[to.Package]; where != "" && r.identifier(to.Package) == to.Package {
		return nil, fmt.Errorf("the package would be named %s, as another that is imported by %s: choose another -kind", to.Package, where)
	}
	for _, old := range slices.Sorted(maps.Keys(s.names)) {
		name := r.identifier(old)
		if name == old {
			continue
		}
		if where := s.names[name]; where != "" && r.identifier(name) == name {
			return nil, fmt.Errorf("%s would become %s, which means something else in %s: choose another -%s", old, name, where, r.flagFor(old))
		}
		if token.IsKeyword(name) || types.Universe.Lookup(name) != nil {
			return nil, fmt.Errorf("%s would become %s, which is a word of Go: choose another -%s", old, name, r.flagFor(old))
		}
	}
	return r, nil
}

// apiFor returns the name of the API's group in Go: the group's first label, unless the
// code has something of that name.
func (s *scope) apiFor(n Names) string {
	if s.names[n.API] == "" && s.names[title(n.API)] == "" {
		return n.API
	}
	return "api" + n.API
}

// packageFor returns the name of the package for the kind's rules: the kind in lower case,
// unless the code has variables of that name.
func (s *scope) packageFor(from, to Names) string {
	name := to.Singular()
	if s.names[name] == "" || s.imports[name] != "" || name == from.Singular() {
		return name
	}
	return name + "rules"
}

// variableFor returns a short name for variables of the kind: the short name that kubectl
// knows, or the beginning of the kind, whichever is free.
func (s *scope) variableFor(n Names) string {
	singular := n.Singular()
	candidates := []string{n.Short}
	for length := 1; length < len(singular); length++ {
		candidates = append(candidates, singular[:length])
	}
	for _, c := range append(candidates, "the"+n.Kind) {
		isTaken := s.names[c] != "" || slices.Contains([]string{n.Package, n.Plural(), n.API, n.Version}, c)
		if !isTaken && token.IsIdentifier(c) && types.Universe.Lookup(c) == nil {
			return c
		}
	}
	return "one" + n.Kind
}
