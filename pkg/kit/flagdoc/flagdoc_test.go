package flagdoc

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func parlor() []*flag.Flag {
	fs := flag.NewFlagSet("parlor", flag.ContinueOnError)
	fs.Duration("melt-after", 5*time.Minute, "How long a scoop lasts, `*` is forever.")
	fs.Func("scoops", "How many there are, 1|2. (default 2)", func(string) error { return nil })
	var all []*flag.Flag
	fs.VisitAll(func(f *flag.Flag) { all = append(all, f) })
	return all
}

func Example() {
	fs := flag.NewFlagSet("parlor", flag.ContinueOnError)
	fs.Int("scoops", 2, "How many scoops a cone has.")
	fmt.Print(Markdown("parlor", Group{Title: "Cones", Flags: []*flag.Flag{fs.Lookup("scoops")}}))
	// Output:
	// ### Cones
	//
	// | Flag | Environment variable | Default | Meaning |
	// | --- | --- | --- | --- |
	// | `-scoops` | `PARLOR_SCOOPS` | `2` | How many scoops a cone has. |
}

func TestMarkdown(t *testing.T) {
	got := Markdown("parlor", Group{"Cones", parlor()})
	for _, want := range []string{
		"| `-melt-after` | `PARLOR_MELT_AFTER` | `5m0s` | How long a scoop lasts, `\\*` is forever. |\n",
		"| `-scoops` | `PARLOR_SCOOPS` | `2` | How many there are, 1\\|2. |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

// A page that is out of date fails the test; after an update it passes, and what people
// wrote around the tables is as it was.
func TestPage(t *testing.T) {
	const around = "# Flags\n<!-- flags of parlor -->\n%s<!-- end of the flags of parlor -->\nThe end.\n"
	file := filepath.Join(t.TempDir(), "flags.md")
	if err := os.WriteFile(file, fmt.Appendf(nil, around, "old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	group := Group{"Cones", parlor()}

	outdated := &recorder{TB: t}
	Page(outdated, file, "parlor", false, group)
	if !outdated.failed {
		t.Error("a page that is out of date passes")
	}
	Page(t, file, "parlor", true, group)
	Page(t, file, "parlor", false, group)
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(around, Markdown("parlor", group)); string(got) != want {
		t.Errorf("after an update:\n%s\nwant:\n%s", got, want)
	}
}

// recorder records a failure instead of failing.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (*recorder) Helper()                 {}
