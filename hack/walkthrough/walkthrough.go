// Package walkthrough carries out a section of a Markdown file that walks its reader through
// a change of a source tree: a test of it does what a reader would do.
//
// A code block of Go, YAML or another file is the whole content of the file that the line
// before it names in backquotes, followed by a colon. A block of diff is a change of that
// file, or of the last one that was named: its lines of context must be found exactly once.
// A block of sh is what the reader runs, and a block of text after it is what that prints.
package walkthrough

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Section returns the text below a heading of a Markdown file, such as "## Install it", up to
// the next heading of the same level.
func Section(file, heading string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	_, section, ok := strings.Cut(string(content), "\n"+heading+"\n")
	if !ok {
		return "", fmt.Errorf("%s has no %q", file, heading)
	}
	level, _, _ := strings.Cut(heading, " ")
	section, _, _ = strings.Cut(section, "\n"+level+" ")
	return section, nil
}

// Block is a code block.
type Block struct {
	File     string // the one that was named last
	Language string // such as go, yaml, diff or sh
	Text     string
}

var block = regexp.MustCompile("(?s)(?:`([^`\n]+)`:\n\n)?```([a-z]+)\n(.*?)```\n")

// Blocks returns the code blocks of a section, in order.
func Blocks(section string) (blocks []Block) {
	file := ""
	for _, found := range block.FindAllStringSubmatch(section, -1) {
		if found[1] != "" {
			file = found[1]
		}
		blocks = append(blocks, Block{file, found[2], found[3]})
	}
	return blocks
}

// Write writes or changes the block's file in a tree.
func (b Block) Write(tree string) error {
	path := filepath.Join(tree, filepath.FromSlash(b.File))
	content := b.Text
	if b.Language == "diff" {
		before, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if content, err = patched(string(before), b.Text); err != nil {
			return fmt.Errorf("%s: %w", b.File, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as in the tree
		return err
	}
	return os.WriteFile(path, []byte(content), 0o644) //nolint:gosec // as in the tree
}

// patched returns the content with a diff applied, which has no line numbers.
func patched(content, diff string) (string, error) {
	var before, after strings.Builder
	for line := range strings.Lines(diff) {
		if line[0] != '+' {
			before.WriteString(line[1:])
		}
		if line[0] != '-' {
			after.WriteString(line[1:])
		}
	}
	if n := strings.Count(content, before.String()); n != 1 {
		return "", fmt.Errorf("these lines are there %d times:\n%s", n, before.String())
	}
	return strings.Replace(content, before.String(), after.String(), 1), nil
}

// Prints returns an error unless the output contains each line of a block of text, in this order.
// An ellipsis in a line stands for anything.
func Prints(output, text string) error {
	rest := output
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		found := regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*")).FindStringIndex(rest)
		if found == nil {
			return fmt.Errorf("it does not print, in this place, %q:\n%s", line, output)
		}
		rest = rest[found[1]:]
	}
	return nil
}
