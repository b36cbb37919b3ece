package main

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed manifest.yaml
var manifestYAML []byte

// A manifest says what belongs to whom: what only the template needs, and what belongs to
// each opt-in controller.
type manifest struct {
	// Generated are files and directories that generators write from nothing.
	Generated   []string        `json:"generated"`
	Template    part            `json:"template"`
	Controllers map[string]part `json:"controllers"`
	// NoControllers is left out where there are none of these.
	NoControllers part `json:"noControllers"`
}

// A part of the tree can be left out.
type part struct {
	// Files are whole files and directories.
	Files []string `json:"files"`
	// Edits remove what is in files that others need, too.
	Edits []edit `json:"edits"`
}

// An edit removes something from a file. It is an error if it finds nothing to remove, so
// that no edit outlives what it was made for.
type edit struct {
	File string `json:"file"` // a pattern for paths
	// Lines is a regular expression: every line that it matches is removed.
	Lines string `json:"lines"`
	// Block is a regular expression: every line that it matches is removed, together with
	// comments above it, the lines below it that are indented further, and the bracket that
	// closes them.
	Block string `json:"block"`
	// Row is the title of a row on a dashboard: it is removed with its panels.
	Row string `json:"row"`
	// Section is the heading of a section in Markdown, without its number signs.
	Section string `json:"section"`
	// Replace is a regular expression, and With what takes the place of its matches.
	Replace string `json:"replace"`
	With    string `json:"with"`
}

func readManifest() (m manifest, err error) {
	if err := yaml.UnmarshalStrict(manifestYAML, &m); err != nil {
		return m, fmt.Errorf("reading the manifest: %w", err)
	}
	return m, nil
}

// leaveOut returns the files without the parts that a fork with these controllers does
// not need.
func (m manifest) leaveOut(files []file, controllers []string) ([]file, error) {
	for _, name := range controllers {
		if _, ok := m.Controllers[name]; !ok {
			return nil, fmt.Errorf("-controllers: there is no %q, but there are %s", name, strings.Join(slices.Sorted(maps.Keys(m.Controllers)), ", "))
		}
	}
	parts := []part{{Files: m.Generated}, m.Template}
	for _, name := range slices.Sorted(maps.Keys(m.Controllers)) {
		if !slices.Contains(controllers, name) {
			parts = append(parts, m.Controllers[name])
		}
	}
	if len(controllers) == 0 {
		parts = append(parts, m.NoControllers)
	}
	files = slices.Clone(files)
	var err error
	for _, p := range parts {
		if files, err = p.remove(files); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func (p part) remove(files []file) ([]file, error) {
	for _, name := range p.Files {
		before := len(files)
		files = slices.DeleteFunc(files, func(f file) bool { return matches(name, f.path) })
		if len(files) == before {
			return nil, fmt.Errorf("manifest: there is no file %s", name)
		}
	}
	for _, e := range p.Edits {
		found := false
		for i, f := range files {
			if !matches(e.File, f.path) {
				continue
			}
			edited, err := e.apply(string(f.content))
			if err != nil {
				return nil, fmt.Errorf("manifest: %s: %w", f.path, err)
			}
			found = found || edited != string(f.content)
			files[i].content = []byte(tidied(f.path, edited))
		}
		if !found {
			return nil, fmt.Errorf("manifest: an edit of %s finds nothing to remove: %+v", e.File, e)
		}
	}
	return files, nil
}

var (
	lastComma  = regexp.MustCompile(`,(\n\s*[\]}])`)
	emptyLines = regexp.MustCompile(`\n{3,}`)
)

// tidied removes what an edit may have left: a comma behind the last element in JSON, and
// more than one empty line.
func tidied(name, text string) string {
	if path.Ext(name) == ".json" {
		text = lastComma.ReplaceAllString(text, "$1")
	}
	return strings.TrimRight(emptyLines.ReplaceAllString(text, "\n\n"), "\n") + "\n"
}

// matches reports whether a path is, or is in, what a pattern names.
func matches(pattern, name string) bool {
	for ; name != "."; name = path.Dir(name) {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			return true
		}
	}
	return false
}

func (e edit) apply(text string) (string, error) {
	pattern, err := regexp.Compile("(?m)" + cmp.Or(e.Lines, e.Block, e.Replace))
	switch {
	case err != nil:
		return "", err
	case e.Lines != "":
		return filter(text, func(line string) bool { return !pattern.MatchString(line) }), nil
	case e.Block != "":
		return withoutBlocks(text, pattern), nil
	case e.Row != "":
		return withoutRow(text, e.Row)
	case e.Section != "":
		return withoutSection(text, e.Section), nil
	case e.Replace != "":
		return pattern.ReplaceAllString(text, e.With), nil
	}
	return "", fmt.Errorf("an edit without anything to do")
}

// filter returns the lines that are to be kept.
func filter(text string, keep func(line string) bool) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if keep(strings.TrimSuffix(line, "\n")) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// withoutBlocks removes each line that the pattern matches, comments directly above it,
// the lines below it that are indented further or empty, and a line with the closing
// bracket.
func withoutBlocks(text string, pattern *regexp.Regexp) string {
	var kept []string
	depth := -1 // of the block that is being removed; -1 outside of blocks
	for line := range strings.Lines(text) {
		trimmed := strings.TrimLeft(strings.TrimSuffix(line, "\n"), " \t")
		indent := len(strings.TrimSuffix(line, "\n")) - len(trimmed)
		switch {
		case depth >= 0 && (trimmed == "" || indent > depth):
			continue
		case depth == indent && strings.ContainsAny(trimmed[:1], "})]"):
			depth = -1
			continue
		}
		depth = -1
		if !isComment(trimmed) && pattern.MatchString(line) {
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

// A row is a panel of a dashboard, and what follows it up to the next one is in it.
const panelStart = "    {\n"

var (
	panelTitle = regexp.MustCompile(`(?m)^      "title": "(.*)",$`)
	panelY     = regexp.MustCompile(`(?m)^        "y": (\d+)$`)
)

// withoutRow removes a row from a dashboard, and moves up what is below it.
func withoutRow(text, title string) (string, error) {
	head, panels, hasHead := strings.Cut(text, "\n  \"panels\": [\n"+panelStart)
	panels, tail, hasTail := strings.Cut(panels, "\n  ]\n")
	if !hasHead || !hasTail {
		return "", errors.New("there are no panels")
	}
	var kept []string
	isInside := false
	top, gap := 0, 0 // of the row, and below it
	for panel := range strings.SplitSeq(panels, ",\n"+panelStart) {
		y, err := yOf(panel)
		if err != nil {
			return "", err
		}
		if strings.Contains(panel, `"type": "row"`) {
			if isInside {
				gap = y - top
			}
			found := panelTitle.FindStringSubmatch(panel)
			isInside = len(found) == 2 && found[1] == title
			if isInside {
				top = y
			}
		}
		if !isInside {
			kept = append(kept, panelY.ReplaceAllString(panel, fmt.Sprintf(`        "y": %d`, y-gap)))
		}
	}
	return head + "\n  \"panels\": [\n" + panelStart + strings.Join(kept, ",\n"+panelStart) + "\n  ]\n" + tail, nil
}

func yOf(panel string) (int, error) {
	found := panelY.FindStringSubmatch(panel)
	if found == nil {
		return 0, errors.New("a panel has no y")
	}
	return strconv.Atoi(found[1])
}

// withoutSection removes a section of Markdown: from its heading to the next heading of
// the same or a higher level.
func withoutSection(text, heading string) string {
	level := 0
	return filter(text, func(line string) bool {
		marks := len(line) - len(strings.TrimLeft(line, "#"))
		isHeading := marks > 0 && strings.HasPrefix(line[marks:], " ")
		if level > 0 && isHeading && marks <= level {
			level = 0
		}
		if isHeading && level == 0 && strings.TrimSpace(line[marks:]) == heading {
			level = marks
		}
		return level == 0
	})
}
