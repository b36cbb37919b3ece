package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// A renamer replaces the names of one Names by those of another. It reads each text once,
// so a new name may contain an old one.
//
// In Go files it distinguishes identifiers from comments and literals, because they follow
// different rules: the kind's lower-case name is a package, and begins variables in camel
// case.
type renamer struct {
	from, to    Names
	variable    string   // that takes the place of the short name in Go
	parts       []string // each match of text contains one of them
	text        *regexp.Regexp
	ident       *regexp.Regexp
	identifiers map[string]string // those that were renamed before
}

func newRenamer(from, to Names, variable string) *renamer {
	q := regexp.QuoteMeta
	group := strings.Split(from.Group, ".")
	for i := range group {
		group[i] = q(group[i])
	}
	kind := fmt.Sprintf(`%s|%s|(?:%s|%s)|%s|%s`,
		q(from.Kinds)+`[a-z]?`, q(from.Kind), q(from.Plural())+`[a-z]?`, q(from.Singular()),
		q(strings.ToUpper(from.Plural())), q(strings.ToUpper(from.Kind)))
	return &renamer{
		from: from, to: to, variable: variable, identifiers: map[string]string{},
		parts: []string{
			from.Registry, from.Package, from.Module, strings.Split(from.Group, ".")[0], from.Controller, from.Project,
			from.API, title(from.API), from.Version, title(from.Version), from.Kind, from.Kinds, from.Singular(), from.Plural(),
			strings.ToUpper(from.Kind), strings.ToUpper(from.Plural()), from.Short,
		},
		text: regexp.MustCompile(strings.Join([]string{
			`(?P<registry>` + q(from.Registry) + `)`,
			q(from.Module) + ` (?P<required>` + q(from.Required) + `)`,
			`\b(?P<package>pkg/` + q(from.Package) + `\b|` + q(from.Package) + `\.[A-Z])`,
			`(?P<module>` + q(from.Module) + `)`,
			`(?P<group>` + strings.Join(group, `\\*\.`) + `)`,
			`(?P<controller>` + q(from.Controller) + `)`,
			`(?P<project>` + q(from.Project) + `)`,
			`(?P<api>` + q(from.API) + `|` + q(title(from.API)) + `)`,
			`(?P<version>` + q(from.Version) + `|` + q(title(from.Version)) + `)`,
			`\b(?P<article>[Aa]n? )(?P<noun>` + kind + `)`,
			`(?P<kind>` + kind + `)`,
			`\b(?P<short>` + q(from.Short) + `)\b`,
		}, "|")),
		ident: regexp.MustCompile(strings.Join([]string{
			`(?P<api>` + q(from.API) + `|` + q(title(from.API)) + `)`,
			`(?P<version>` + q(from.Version) + `|` + q(title(from.Version)) + `)`,
			`(?P<kind>` + kind + `)`,
			`^(?P<short>` + q(from.Short) + `)$`,
		}, "|")),
	}
}

func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// Text renames in a text, such as a path. No name spans lines, and the pattern, which is slow,
// is for those only that have a part of one.
func (r *renamer) Text(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if slices.ContainsFunc(r.parts, func(part string) bool { return strings.Contains(line, part) }) {
			line = r.line(line)
		}
		out.WriteString(line)
	}
	return out.String()
}

func (r *renamer) line(line string) string {
	return r.replace(r.text, line, func(name, match string) string {
		switch name {
		case "module":
			return r.to.Module
		case "required":
			return r.to.Module + " " + r.to.Required
		case "package": // its directory, or the beginning of a name in it
			return strings.Replace(match, r.from.Package, r.to.Package, 1)
		case "registry":
			return r.to.Registry
		case "group":
			dot := match[strings.IndexAny(match, `\.`):]
			dot = dot[:strings.Index(dot, ".")+1]
			return strings.ReplaceAll(r.to.Group, ".", dot)
		case "controller":
			return r.to.Controller
		case "project":
			return r.to.Project
		case "article":
			return match[:1] + articleFor(r.to.Kind)
		case "short":
			return r.to.Short
		case "kind", "noun":
			return r.kind(match, false)
		}
		return r.common(name, match)
	})
}

// identifier renames in an identifier of Go.
func (r *renamer) identifier(ident string) string {
	if renamed, ok := r.identifiers[ident]; ok {
		return renamed
	}
	r.identifiers[ident] = r.renamed(ident)
	return r.identifiers[ident]
}

// flagFor returns the flag from which the new name of an identifier comes.
func (r *renamer) flagFor(ident string) string {
	switch lower := strings.ToLower(ident); {
	case strings.Contains(lower, r.from.API):
		return "group"
	case strings.Contains(lower, r.from.Version):
		return "version"
	case strings.Contains(lower, r.from.Plural()):
		return "plural"
	}
	return "kind"
}

func (r *renamer) renamed(ident string) string {
	return r.replace(r.ident, ident, func(name, match string) string {
		switch name {
		case "short":
			return r.variable
		case "kind":
			if strings.TrimSuffix(ident, "_test") == r.from.Package {
				return r.to.Package
			}
			return r.kind(match, match != ident)
		}
		return r.common(name, match)
	})
}

// common renames what is the same in identifiers and other texts.
func (r *renamer) common(name, match string) string {
	to := r.to.Version
	if name == "api" {
		to = r.to.API
	}
	if unicode.IsUpper(rune(match[0])) {
		return title(to)
	}
	return to
}

// kind renames the kind, in whatever form. A plural that is followed by a lower-case letter
// is none: in icecreamspec, the s belongs to what follows.
func (r *renamer) kind(match string, isCamel bool) string {
	from, to := r.from, r.to
	switch match {
	case from.Kind:
		return to.Kind
	case from.Kinds:
		return to.Kinds
	case from.Singular():
		if isCamel {
			return lowerFirst(to.Kind)
		}
		return to.Singular()
	case from.Plural():
		if isCamel {
			return lowerFirst(to.Kinds)
		}
		return to.Plural()
	case strings.ToUpper(from.Kind):
		return strings.ToUpper(to.Kind)
	case strings.ToUpper(from.Plural()):
		return strings.ToUpper(to.Kinds)
	}
	// More than the name has matched.
	for _, singular := range []string{from.Kind, from.Singular()} {
		if rest, ok := strings.CutPrefix(match, singular); ok {
			return r.kind(singular, isCamel) + rest
		}
	}
	return match
}

// lowerFirst makes a name in camel case begin with a lower-case letter, or with a
// lower-case abbreviation: iceShelf, urlMap.
func lowerFirst(name string) string {
	upper := 0
	for upper < len(name) && unicode.IsUpper(rune(name[upper])) {
		upper++
	}
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

// replace replaces each match of a pattern by what the function returns for the names of
// its groups and what they matched.
func (r *renamer) replace(pattern *regexp.Regexp, text string, with func(name, match string) string) string {
	names := pattern.SubexpNames()
	var out strings.Builder
	last := 0
	for _, at := range pattern.FindAllStringSubmatchIndex(text, -1) {
		out.WriteString(text[last:at[0]])
		for i := 1; i < len(names); i++ {
			if names[i] != "" && at[2*i] >= 0 {
				out.WriteString(with(names[i], text[at[2*i]:at[2*i+1]]))
			}
		}
		last = at[1]
	}
	out.WriteString(text[last:])
	return out.String()
}

// Go renames in a Go file.
func (r *renamer) Go(path string, src []byte) ([]byte, error) {
	files := token.NewFileSet()
	file := files.AddFile(path, -1, len(src))
	var s scanner.Scanner
	var problem error
	s.Init(file, src, func(at token.Position, msg string) { problem = fmt.Errorf("%s: %s", at, msg) }, scanner.ScanComments)
	var out strings.Builder
	last := 0
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			break
		}
		at := file.Offset(pos)
		var renamed string
		switch tok {
		case token.IDENT:
			renamed = r.identifier(literal)
		case token.COMMENT, token.STRING, token.CHAR:
			renamed = r.Text(literal)
		default:
			continue
		}
		out.Write(src[last:at])
		out.WriteString(renamed)
		last = at + len(literal)
	}
	if problem != nil {
		return nil, problem
	}
	out.Write(src[last:])
	return []byte(out.String()), nil
}
