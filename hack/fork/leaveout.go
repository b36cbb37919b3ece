package main

import (
	_ "embed"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed manifest.yaml
var manifestYAML []byte

// A manifest says what belongs to whom. Files are patterns for paths of files and
// directories. Words are regular expressions that ignore case: a file with a match in its
// path is left out, and so is each mention in other files.
type manifest struct {
	Generated []string `json:"generated"` // files that generators write from nothing
	Template  struct { // only the template needs it
		Files []string `json:"files"`
		Words string   `json:"words"`
	} `json:"template"`
	Controllers   map[string]string `json:"controllers"`   // words of each
	NoControllers string            `json:"noControllers"` // words
}

func readManifest() (m manifest, err error) {
	if err := yaml.UnmarshalStrict(manifestYAML, &m); err != nil {
		return m, fmt.Errorf("reading the manifest: %w", err)
	}
	return m, nil
}

// leaveOut returns the files without what a fork with these controllers does not need.
func leaveOut(files []file, controllers []string) ([]file, error) {
	m, err := readManifest()
	if err != nil {
		return nil, err
	}
	all := slices.Sorted(maps.Keys(m.Controllers))
	for _, name := range controllers {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("-controllers: there is no %q, but there are %s", name, strings.Join(all, ", "))
		}
	}
	words := []string{m.Template.Words}
	for _, name := range all {
		if !slices.Contains(controllers, name) {
			words = append(words, m.Controllers[name])
		}
	}
	if len(controllers) == 0 {
		words = append(words, m.NoControllers)
	}
	o := omission{files: map[string]bool{}, words: regexp.MustCompile("(?i)" + strings.Join(words, "|"))}
	var kept []file
	for _, f := range files {
		switch {
		case matches(m.Generated, f.path): // It will be there again.
		case o.words.MatchString(f.path), matches(m.Template.Files, f.path):
			for name := f.path; name != "."; name = path.Dir(name) {
				o.files[name] = true
			}
		default:
			kept = append(kept, f)
		}
	}
	for _, f := range kept { // Links to a directory stay if any of its files does.
		for name := f.path; name != "."; name = path.Dir(name) {
			delete(o.files, name)
		}
	}
	for i, f := range kept {
		kept[i].content = []byte(o.from(f.path, string(f.content)))
	}
	return kept, nil
}

// matches reports whether a path is, or is in, what one of the patterns names.
func matches(patterns []string, name string) bool {
	for ; name != "."; name = path.Dir(name) {
		if slices.ContainsFunc(patterns, func(pattern string) bool { ok, err := path.Match(pattern, name); return ok && err == nil }) {
			return true
		}
	}
	return false
}

// An omission removes mentions of what is left out.
type omission struct {
	files map[string]bool // and directories
	words *regexp.Regexp
}

var (
	lastComma  = regexp.MustCompile(`,(\n\s*[\]}])`)
	emptyLines = regexp.MustCompile(`\n{3,}`)
	panel      = regexp.MustCompile(`(?m)^    \{\n(?:     .*\n)+    \},?\n`)
)

// from returns a file's text without mentions.
func (o omission) from(name, text string) string {
	before := text
	switch {
	case path.Ext(name) == ".md":
		text = o.fromMarkdown(name, text)
	case path.Base(name) == "dashboard.json": // Grafana moves up the panels below.
		text = without(panel, text, o.words.MatchString)
	default:
		text = o.fromBlocks(text)
	}
	if text == before {
		return text
	}
	if path.Ext(name) == ".json" {
		text = lastComma.ReplaceAllString(text, "$1")
	}
	return strings.TrimRight(emptyLines.ReplaceAllString(text, "\n\n"), "\n") + "\n"
}

var (
	link     = regexp.MustCompile(`\[[^\]]*\]\(([^)#]+)[^)]*\)`)
	listed   = regexp.MustCompile(`, \[[^\]]*\]\([^)]*\)`)
	sentence = regexp.MustCompile(`(?:[^.!?]|[.!?]\S)+(?:[.!?]|$)\s*`)
)

// fromMarkdown removes headings that mention something, with their sections. Elsewhere
// it removes table rows, list items, sentences of paragraphs and lines of code.
func (o omission) fromMarkdown(name, text string) string {
	mentions := func(text string) bool {
		if o.words.MatchString(text) {
			return true
		}
		return slices.ContainsFunc(link.FindAllStringSubmatch(text, -1), func(found []string) bool {
			return o.files[path.Join(path.Dir(name), found[1])]
		})
	}
	var kept strings.Builder
	omitted := 0 // level of the section that is being omitted
	isCode := false
	for line := range strings.Lines(text) {
		isFence := strings.HasPrefix(strings.TrimSpace(line), "```")
		isCode = isCode != isFence
		level := levelOf(line)
		if isCode {
			level = 0
		}
		if level > 0 && (omitted == 0 || level <= omitted) {
			omitted = 0
			if o.words.MatchString(line) {
				omitted = level
			}
		}
		if omitted > 0 {
			continue
		}
		if mentions(line) {
			if line = without(listed, line, mentions); mentions(line) {
				if isCode || strings.ContainsAny(line[:1], "|-* 0123456789") {
					continue
				}
				line = strings.TrimSpace(without(sentence, line, mentions)) + "\n"
			}
		}
		kept.WriteString(line)
	}
	return kept.String()
}

// without removes the matches of a pattern that mention something.
func without(pattern *regexp.Regexp, text string, mentions func(string) bool) string {
	return pattern.ReplaceAllStringFunc(text, func(match string) string {
		if mentions(match) {
			return ""
		}
		return match
	})
}

// levelOf returns the level of a heading, or 0.
func levelOf(line string) int {
	marks := len(line) - len(strings.TrimLeft(line, "#"))
	if !strings.HasPrefix(line[marks:], " ") {
		return 0
	}
	return marks
}

// fromBlocks removes each line that mentions something, comments directly above it, the
// lines below it that are indented further, and the bracket that closes them. It also
// removes what stands between a comment that consists of such a word, or begins with it
// and a colon, and a comment "end of" it. Other comments stay as they are.
func (o omission) fromBlocks(text string) string {
	const comment = `[^\n]*(?:#|//|/\*) `
	text = regexp.MustCompile(`(?ims)^`+comment+`(?:`+o.words.String()+`)(?::[^\n]*| \*/}})?\n.*?^`+comment+`end of [^\n]*\n`).ReplaceAllString(text, "")
	var kept []string
	depth := -1 // of the block that is being removed; -1 outside of blocks
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		indent := len(line) - len(strings.TrimLeft(line, " \t"))
		switch {
		case depth >= 0 && (trimmed == "" || indent > depth):
			continue
		case depth == indent && strings.ContainsAny(trimmed[:1], "})]"):
			depth = -1
			continue
		}
		depth = -1
		if !isComment(trimmed) && o.words.MatchString(line) {
			depth = indent
			for len(kept) > 0 && isComment(strings.TrimSpace(kept[len(kept)-1])) {
				kept = kept[:len(kept)-1]
			}
			continue
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "")
}

func isComment(trimmed string) bool {
	return strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, "//")
}
