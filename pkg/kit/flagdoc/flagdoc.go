// Package flagdoc keeps a page of documentation in agreement with the flags of a
// program: a test renders them as tables, and compares or replaces what the page has.
package flagdoc

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"nicoleh.io/k8s-controller/pkg/kit/flags"
)

// Group is a table of flags.
type Group struct {
	Title string
	Flags []*flag.Flag
}

// Page fails the test unless the part of the file between the lines
//
//	<!-- flags of PROGRAM -->
//	<!-- end of the flags of PROGRAM -->
//
// is the Markdown of the groups. If update is true it replaces that part instead.
func Page(t testing.TB, file, program string, update bool, groups ...Group) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- flags of "+program+" -->\n", "<!-- end of the flags of "+program+" -->\n"
	before, rest, hasBegin := strings.Cut(string(content), begin)
	old, after, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		t.Fatalf("%s does not have the lines %q and %q", file, begin, end)
	}
	current := Markdown(program, groups...)
	switch {
	case old == current:
	case !update:
		t.Errorf("%s does not show the flags of %s as they are: run hack/update-codegen.sh", file, program)
	default:
		if err := os.WriteFile(file, []byte(before+begin+current+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// atEnd matches the default value at the end of a usage, where package flag does not
// know it.
var atEnd = regexp.MustCompile(`\s*\(default ([^()]+)\)`)

// Markdown returns a table of the flags of each group: their names on the command line
// and in the environment, their defaults and what they mean.
func Markdown(program string, groups ...Group) string {
	var b strings.Builder
	for _, group := range groups {
		fmt.Fprintf(&b, "\n### %s\n\n| Flag | Environment variable | Default | Meaning |\n| --- | --- | --- | --- |\n", group.Title)
		for _, f := range group.Flags {
			value, usage := f.DefValue, f.Usage
			if match := atEnd.FindStringSubmatch(usage); match != nil {
				value, usage = match[1], strings.Replace(usage, match[0], "", 1)
			}
			if value != "" {
				value = "`" + value + "`"
			}
			fmt.Fprintf(&b, "| `-%s` | `%s` | %s | %s |\n", f.Name, flags.EnvironmentVariable(program, f.Name), value, cell(usage))
		}
	}
	b.WriteByte('\n')
	return b.String()
}

// cell returns text as it has to be written in a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "*", `\*`, "<", "&lt;").Replace(text)
}
