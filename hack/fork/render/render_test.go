package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// repository returns the files of this repository, as they are committed.
func repository(t testing.TB) []file {
	t.Helper()
	files, err := committed(t.Context(), "../../..")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A fork without and with each of the controllers shows nothing of the template, and
// nothing of the controllers that it does not have. FORK_DIR=/tmp/shelf writes one.
func TestNothingIsLeft(t *testing.T) {
	shelves := fork(t, repository(t), shelf())
	requireNothingLeft(t, shelf(), shelves.files)
	if dir := os.Getenv("FORK_DIR"); dir != "" {
		if err := write(dir, shelves.files); err != nil {
			t.Fatal(err)
		}
	}
}

// brokenArticle matches the article of the template's kind at the end of a line, and the
// kind of a fork, which has another one, on the next.
var brokenArticle = regexp.MustCompile(`(?i)\ban\n[\s/#*]*(shelf|zqwk)`)

// words are by which the template and each of its controllers would be known.
var words = map[string]string{
	"":             `icecream|nicoleh|samplecontroller|k8s-controller|\bice\b`,
	"podtimestamp": `podtimestamp|addtime`,
	"secretsync":   `secretsync`,
	"nodereboot":   `reboot`,
}

func requireNothingLeft(t *testing.T, a Answers, files []file) {
	t.Helper()
	var patterns []string
	for name, pattern := range words {
		if !slices.Contains(a.Controllers, name) {
			patterns = append(patterns, pattern)
		}
	}
	old := regexp.MustCompile(`(?i)` + strings.Join(patterns, "|"))
	for _, f := range files {
		if slices.Contains(verbatim, f.path[strings.LastIndex(f.path, "/")+1:]) {
			continue
		}
		text := strings.Replace(string(f.content), origin, "", 1)
		if found := brokenArticle.FindString(text); found != "" {
			t.Errorf("%s: the article does not fit, and renaming does not see it: %q", f.path, found)
		}
		for i, line := range strings.Split(f.path+"\n"+text, "\n") {
			if old.MatchString(line) {
				t.Errorf("with %v, %s:%d: %s", a.Controllers, f.path, i, line)
			}
		}
	}
}
