// Command verify-links reads the Markdown files that are given as arguments, and reports
// links to files, and to headings in them, that do not exist. It does not check links to
// other hosts.
package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

func main() {
	broken := 0
	for _, file := range os.Args[1:] {
		complaints, err := check(file)
		if err != nil {
			complaints = append(complaints, err.Error())
		}
		for _, c := range complaints {
			fmt.Fprintln(os.Stderr, c)
		}
		broken += len(complaints)
	}
	if broken > 0 {
		os.Exit(1)
	}
}

var (
	fence  = regexp.MustCompile("^\\s*(```|~~~)")
	code   = regexp.MustCompile("`[^`]*`")
	inline = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?(?:\s+["'(][^)]*)?\)`)
	define = regexp.MustCompile(`^\s{0,3}\[[^\]]+\]:\s*<?(\S+?)>?(?:\s|$)`)
	html   = regexp.MustCompile(`(?:href|src|srcset)="([^"]+)"`)
	title  = regexp.MustCompile(`^\s{0,3}#{1,6}\s+(.+?)\s*#*\s*$`)
	anchor = regexp.MustCompile(`(?:id|name)="([^"]+)"`)
	target = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

// check returns one complaint per broken link in the file.
func check(file string) ([]string, error) {
	lines, err := prose(file)
	if err != nil {
		return nil, err
	}
	var complaints []string
	for number, line := range lines {
		line = code.ReplaceAllString(line, "")
		for _, pattern := range []*regexp.Regexp{inline, define, html} {
			for _, match := range pattern.FindAllStringSubmatch(line, -1) {
				if why := broken(file, match[1]); why != "" {
					complaints = append(complaints, fmt.Sprintf("%s:%d: %s: %s", file, number+1, match[1], why))
				}
			}
		}
	}
	return complaints, nil
}

// broken returns why the target of a link in the file does not exist. It returns "" if the
// target exists, or if it is on another host.
func broken(file, link string) string {
	to, err := url.Parse(link)
	if err != nil {
		return err.Error()
	}
	if to.Scheme != "" || to.Host != "" {
		return ""
	}
	path := file
	if to.Path != "" {
		path = filepath.Join(filepath.Dir(file), filepath.FromSlash(to.Path))
		if strings.HasPrefix(to.Path, "/") {
			path = "." + filepath.FromSlash(to.Path) // from the root of the repository
		}
	}
	if _, err := os.Stat(path); err != nil {
		return "no such file"
	}
	if to.Fragment == "" || !strings.EqualFold(filepath.Ext(path), ".md") {
		return ""
	}
	lines, err := prose(path)
	if err != nil {
		return err.Error()
	}
	if !headings(lines)[to.Fragment] {
		return "no such heading"
	}
	return ""
}

// prose returns the lines of a file. Lines in code blocks are replaced by empty ones.
func prose(file string) ([]string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(content), "\n")
	inCode := ""
	for i, line := range lines {
		mark := fence.FindStringSubmatch(line)
		if inCode != "" || mark != nil {
			lines[i] = ""
		}
		switch {
		case mark == nil:
		case inCode == "":
			inCode = mark[1]
		case inCode == mark[1]:
			inCode = ""
		}
	}
	return lines, nil
}

// headings returns the fragments that a link to a page can have: those that GitHub derives
// from headings, and the names and IDs of HTML elements.
func headings(lines []string) map[string]bool {
	known := map[string]bool{}
	for _, line := range lines {
		for _, match := range anchor.FindAllStringSubmatch(line, -1) {
			known[match[1]] = true
		}
		match := title.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		name := slug(match[1])
		unique := name
		for n := 1; known[unique]; n++ {
			unique = fmt.Sprintf("%s-%d", name, n)
		}
		known[unique] = true
	}
	return known
}

// slug returns the fragment that GitHub derives from a heading.
func slug(heading string) string {
	heading = target.ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, heading)
}
