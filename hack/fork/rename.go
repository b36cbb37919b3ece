package main

import (
	"fmt"
	"go/format"
	"go/scanner"
	"go/token"
	"go/types"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// verbatim are files that no name is changed in.
var verbatim = []string{"LICENSE", "go.sum"}

// engine are the directories that know no API of this repository. Only the module's path
// changes in them.
var engine = regexp.MustCompile(`^(internal|pkg/kit|pkg/kittest|hack/local-cluster|examples)/`)

func isGo(name string) bool { return path.Ext(name) == ".go" }

// words are old names with the new ones. All are replaced in one pass, so a new name can
// contain an old one. Where several old names begin, the first of the list counts.
type words struct {
	patterns []string
	renamed  map[string]string
	compiled *regexp.Regexp
}

func (w *words) add(old, name string) { w.addPattern(regexp.QuoteMeta(old), old, name) }

func (w *words) addPattern(pattern, old, name string) {
	w.patterns, w.renamed[old] = append(w.patterns, pattern), name
}

func (w *words) replace(text string) string {
	if w.compiled == nil {
		w.compiled = regexp.MustCompile(strings.Join(w.patterns, "|"))
	}
	return w.compiled.ReplaceAllStringFunc(text, func(old string) string { return w.renamed[old] })
}

// A renamer replaces the names of the template by those of a fork. In Go, identifiers
// follow other rules than comments and literals: there, the kind in lower case is a package,
// or begins a name in camel case.
type renamer struct {
	to          Names
	text, ident words
	engine      *strings.Replacer
	whole       map[string]string // identifiers as a whole
}

// newRenamer returns a renamer. In Go, variables named like the short name of the kind become
// the variable.
func newRenamer(from, to Names, variable string) *renamer {
	r := &renamer{
		to: to, text: words{renamed: map[string]string{}}, ident: words{renamed: map[string]string{}},
		whole: map[string]string{from.Package: to.Package, from.Package + "_test": to.Package + "_test", from.Short: variable},
	}
	r.engine = strings.NewReplacer(from.Module+" "+from.Required, to.Module+" "+to.Required, from.Module, to.Module)
	t := &r.text
	t.add(from.Registry, to.Registry)
	t.add(from.Module+" "+from.Required, to.Module+" "+to.Required)
	t.add("pkg/"+from.Package, "pkg/"+to.Package)
	t.add(from.Module, to.Module)
	example := "examples/database/" + from.Version // keeps its version
	t.add(example, example)
	for _, dot := range []string{".", `\.`, `\\.`} {
		t.add(strings.ReplaceAll(from.Group, ".", dot), strings.ReplaceAll(to.Group, ".", dot))
	}
	t.add(from.Controller, to.Controller)
	t.add(from.Project, to.Project)
	for _, kinds := range [][2]string{{from.Kind, to.Kind}, {from.Singular(), to.Singular()}} {
		for _, a := range []string{"a", "A"} {
			old := a + articleFor(from.Kind) + kinds[0]
			t.addPattern(`\b`+regexp.QuoteMeta(old), old, a+articleFor(to.Kind)+kinds[1])
		}
	}
	for _, w := range []*words{t, &r.ident} {
		w.add(from.API, to.API)
		w.add(title(from.API), title(to.API))
		w.add(from.Version, to.Version)
		w.add(title(from.Version), title(to.Version))
		w.add(from.Kinds, to.Kinds)
		w.add(from.Kind, to.Kind)
	}
	for _, suffix := range []string{"spec", "status"} { // begin with an s that is no plural's
		t.add(from.Singular()+suffix, to.Singular()+suffix)
	}
	t.add(from.Plural(), to.Plural())
	t.add(from.Singular(), to.Singular())
	t.add(strings.ToUpper(from.Plural()), strings.ToUpper(to.Plural()))
	t.add(strings.ToUpper(from.Kind), strings.ToUpper(to.Kind))
	t.addPattern(`\b`+regexp.QuoteMeta(from.Short)+`\b`, from.Short, to.Short)
	r.ident.add(lowerFirst(from.Kinds), lowerFirst(to.Kinds))
	r.ident.add(lowerFirst(from.Kind), lowerFirst(to.Kind))
	return r
}

func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// lowerFirst makes a name in camel case begin with a lower-case letter, or with a
// lower-case abbreviation: iceShelf, httpRoute.
func lowerFirst(name string) string {
	upper := len(name) - len(strings.TrimLeftFunc(name, unicode.IsUpper))
	if upper > 1 && upper < len(name) && unicode.IsLower(rune(name[upper])) {
		upper--
	}
	return strings.ToLower(name[:upper]) + name[upper:]
}

// articleFor returns what follows the "a" of the indefinite article in front of a noun.
func articleFor(noun string) string {
	if strings.ContainsRune("AEIOU", rune(noun[0])) {
		return "n "
	}
	return " "
}

func (r *renamer) identifier(ident string) string {
	if renamed, ok := r.whole[ident]; ok {
		return renamed
	}
	return r.ident.replace(ident)
}

// Go renames in a Go file.
func (r *renamer) Go(name string, src []byte) ([]byte, error) {
	var out strings.Builder
	last := 0
	err := scan(name, src, func(at int, tok token.Token, literal string, _ bool) {
		renamed := r.text.replace
		if tok == token.IDENT {
			renamed = r.identifier
		}
		out.Write(src[last:at])
		out.WriteString(renamed(literal))
		last = at + len(literal)
	})
	if err != nil {
		return nil, err
	}
	out.Write(src[last:])
	return format.Source([]byte(out.String())) // at least the order of imports has changed
}

// scan visits the identifiers, comments and literals of a Go file. A selected identifier
// follows a dot.
func scan(name string, src []byte, visit func(at int, tok token.Token, literal string, isSelected bool)) error {
	file := token.NewFileSet().AddFile(name, -1, len(src))
	var s scanner.Scanner
	var problem error
	s.Init(file, src, func(at token.Position, msg string) { problem = fmt.Errorf("%s: %s", at, msg) }, scanner.ScanComments)
	for before := token.ILLEGAL; ; {
		pos, tok, literal := s.Scan()
		switch tok {
		case token.EOF:
			return problem
		case token.IDENT, token.COMMENT, token.STRING, token.CHAR:
			visit(file.Offset(pos), tok, literal, before == token.PERIOD)
		default:
		}
		before = tok
	}
}

// all returns the files under their new names.
func (r *renamer) all(files []file) ([]file, error) {
	renamed := make([]file, 0, len(files))
	taken := map[string]bool{}
	for _, f := range files {
		var err error
		switch {
		case slices.Contains(verbatim, path.Base(f.path)):
		case engine.MatchString(f.path):
			f.content = []byte(r.engine.Replace(string(f.content)))
			if isGo(f.path) {
				f.content, err = format.Source(f.content)
			}
		case isGo(f.path):
			f.content, err = r.Go(f.path, f.content)
			f.path = r.text.replace(f.path)
		default:
			f.content = []byte(r.text.replace(string(f.content)))
			f.path = r.text.replace(f.path)
		}
		if err != nil {
			return nil, fmt.Errorf("renaming in %s: %w", f.path, err)
		}
		if taken[f.path] {
			return nil, fmt.Errorf("two files would be named %s: choose another -kind", f.path)
		}
		taken[f.path] = true
		renamed = append(renamed, f)
	}
	slices.SortFunc(renamed, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return renamed, nil
}

// renamerFor returns a renamer for the files. Names that Go code can choose freely are
// chosen so that they mean nothing else there. If another one does, that is an error.
func renamerFor(files []file, from, to Names) (*renamer, error) {
	used := map[string]string{} // identifiers that are not selected, with a file for each
	for _, f := range files {
		if !isGo(f.path) || engine.MatchString(f.path) {
			continue
		}
		err := scan(f.path, f.content, func(_ int, tok token.Token, literal string, isSelected bool) {
			if tok == token.IDENT && !isSelected {
				used[literal] = f.path
			}
		})
		if err != nil {
			return nil, err
		}
	}
	taken := maps.Clone(used)
	free := func(candidates ...string) (name string) {
		for _, name = range candidates {
			if taken[name] == "" && taken[title(name)] == "" && token.IsIdentifier(name) && types.Universe.Lookup(name) == nil {
				break
			}
		}
		taken[name] = "another name"
		return name
	}
	to.API = free(to.API, "api"+to.API)
	to.Package = free(to.Package, to.Package+"rules")
	taken[to.Version], taken[lowerFirst(to.Kind)], taken[lowerFirst(to.Kinds)] = "the API", "the API", "the API"
	candidates := []string{to.Short}
	for length := 1; length < len(to.Kind); length++ {
		candidates = append(candidates, to.Singular()[:length])
	}
	r := newRenamer(from, to, free(append(candidates, "the"+to.Kind)...))
	for _, old := range slices.Sorted(maps.Keys(used)) {
		name := r.identifier(old)
		if name == old {
			continue
		}
		if where := used[name]; where != "" && r.identifier(name) == name {
			return nil, fmt.Errorf("%s would become %s, which means something else in %s: choose other names", old, name, where)
		}
		if token.IsKeyword(name) || types.Universe.Lookup(name) != nil {
			return nil, fmt.Errorf("%s would become %s, which is a word of Go: choose other names", old, name)
		}
	}
	return r, nil
}
