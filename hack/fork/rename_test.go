package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/format"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/pkg/kit/patch"
)

var (
	seed  = flag.Uint64("seed", 0, "seed of hostile names; 0 is a new one")
	count = flag.Int("names", 0, "number of forks with hostile names")
)

// skipUnlessAsked skips a test that takes long, and that the go command would not run again
// after a commit, because it does not see what git reads.
func skipUnlessAsked(t *testing.T) {
	t.Helper()
	if *count == 0 {
		t.Skip("-names is 0")
	}
}

// neutral has names that occur nowhere else.
var neutral = Answers{Module: "wxyzq.example/zqjx", Group: "zqvk.wxyzq.example", Version: "v7alpha9", Kind: "Zqwk", Plural: "zqwkxen", Short: "zqk"}

// repository returns the files of this repository, as they are committed.
func repository(t testing.TB) []file {
	t.Helper()
	files, err := committed(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// known are words by which the template would be recognized.
var known = regexp.MustCompile(`(?i)icecream|nicoleh|samplecontroller|k8s-controller|\bice\b`)

// brokenArticle matches the article of the template's kind at the end of a line, and the
// kind of a fork on the next.
var brokenArticle = regexp.MustCompile(`(?i)\ban\n[\s/#*]*zqwk`)

// A fork shows no name of the template.
func TestNothingIsLeft(t *testing.T) {
	skipUnlessAsked(t)
	files, err := forked(repository(t), neutral)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if slices.Contains(verbatim, path.Base(f.path)) {
			continue
		}
		if found := brokenArticle.Find(f.content); found != nil {
			t.Errorf("%s: the article does not fit, and renaming does not see it: %q", f.path, found)
		}
		for i, line := range strings.Split(f.path+"\n"+string(f.content), "\n") {
			if known.MatchString(strings.ReplaceAll(line, patch.AnnotationAsked, "")) { // The annotation is the kit's.
				t.Errorf("%s:%d: %s", f.path, i, line)
			}
		}
	}
}

// Each path that a fork does not get names something.
func TestWhatIsNotKeptExists(t *testing.T) {
	files := repository(t)
	for _, pattern := range slices.Concat(ours, generated) {
		if !slices.ContainsFunc(files, func(f file) bool { return matches([]string{pattern}, f.path) }) {
			t.Errorf("there is no file %s", pattern)
		}
	}
}

// A fork by hostile names is the same as a fork by neutral ones whose names are replaced:
// nothing is taken for a name that is none, and no name is overlooked.
func TestHostileNames(t *testing.T) {
	skipUnlessAsked(t)
	random, files := newRand(t), repository(t)
	done, refused := 0, 0
	for done < *count && !t.Failed() {
		a := hostile(random)
		result, err := forked(files, a)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%+v: %v", a, err)
			}
			refused++
			t.Logf("refused: %v", err)
			continue
		}
		done++
		if err := requireSame(files, a, result); err != nil {
			t.Errorf("%+v: %v", a, err)
		}
	}
	t.Logf("%d forks, and %d answers that were refused in one line", done, refused)
	if refused > 4*done {
		t.Error("most names were refused: what is hostile about the others?")
	}
}

// newRand returns a source of random answers, and logs its seed.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d", *seed)
	return rand.New(rand.NewPCG(*seed, 0)) //nolint:gosec // not for secrets
}

func requireSame(tree []file, a Answers, result []file) error {
	names, err := a.Names()
	if err != nil {
		return err
	}
	between, err := neutral.Names()
	if err != nil {
		return err
	}
	source := kept(tree)
	direct, err := renamerFor(source, template(), names)
	if err != nil {
		return err
	}
	first, err := renamerFor(source, template(), between)
	if err != nil {
		return err
	}
	middle, err := first.all(source)
	if err != nil {
		return err
	}
	want, err := newRenamer(between, direct.to, direct.whole[template().Short]).all(middle)
	if err != nil {
		return err
	}
	if len(want) != len(result) {
		return fmt.Errorf("there are %d files, want %d", len(result), len(want))
	}
	for i, f := range result {
		if f.path != want[i].path || !bytes.Equal(f.content, want[i].content) {
			return fmt.Errorf("%s differs (-want +got):\n%s", f.path, cmp.Diff(want[i].path+"\n"+string(want[i].content), f.path+"\n"+string(f.content)))
		}
		if err := valid(f); err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
	}
	return nil
}

var metadataName = regexp.MustCompile(`(?m)^  (?:name|namespace): ([a-z0-9.-]+)$`)

// valid reports what is wrong with a file by itself.
func valid(f file) error {
	switch ext := path.Ext(f.path); {
	case ext == ".go":
		if formatted, err := format.Source(f.content); err != nil || !bytes.Equal(formatted, f.content) {
			return fmt.Errorf("not formatted: %w", err)
		}
	case ext == ".json" && !json.Valid(f.content):
		return fmt.Errorf("not JSON")
	case (ext == ".yaml" || ext == ".yml") && !strings.Contains(f.path, "/templates/"):
		for document := range bytes.SplitSeq(f.content, []byte("\n---\n")) {
			var content any
			if err := yaml.UnmarshalStrict(document, &content); err != nil {
				return err
			}
		}
		for _, found := range metadataName.FindAllStringSubmatch(string(f.content), -1) {
			if problems := validation.IsDNS1123Subdomain(found[1]); len(problems) > 0 {
				return fmt.Errorf("%s: %s", found[1], problems[0])
			}
		}
	}
	return nil
}

// hostile returns unusual answers that are likely to break a tool. Some must be refused.
func hostile(r *rand.Rand) Answers {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	letters := func(n int, from string) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = from[r.IntN(len(from))]
		}
		return string(b)
	}
	const lower = "abcdefghijklmnopqrstuvwxyz"
	a := Answers{
		Kind: pick(
			// Containing the template's name, and contained in it.
			"IcecreamShop", "MyIcecream", "Icecreams", "Icecreamicecream", "TheIcecreamsOfIcecream", "Ice", "Icecre", "Cream", "Ecream", "IceCream", "ICECREAM",
			// The template's other names.
			"Nicoleh", "Samplecontroller", "Controller", "V1alpha1", "Alpha",
			// Words that the code has, too.
			"Status", "Node", "Secret", "Name", "Deploy", "Label", "Replica", "Image", "Reason", "Condition", "Object", "Client", "Key", "Kit", "Lab", "Release", "Chart", "Metric",
			// Initials, digits, length.
			"URL", "HTTPRoute", "H2o", "X509", "Zz",
			strings.ToUpper(letters(1, lower)),
			strings.ToUpper(letters(1, lower))+letters(r.IntN(8), lower+"0123456789"),
			strings.ToUpper(letters(1, lower))+letters(5, lower)+strings.ToUpper(letters(1, lower))+letters(6, lower),
			strings.ToUpper(letters(1, lower))+letters(62, lower),
		),
		Version: pick("v1", "v2", "v1beta1", "v1alpha1", "v1alpha2", "v12beta34"),
	}
	a.Plural = pick("", "", "", strings.ToLower(a.Kind)+"en", strings.ToLower(a.Kind)+"e", "names", "people", "icecreams", "icecream", "data", "spec", "status", letters(63, lower))
	a.Short = pick("", "", "", letters(1+r.IntN(3), lower), "ice", "icecream", "controller", "v1")
	group := make([]string, 1+r.IntN(10))
	for i := range group {
		group[i] = pick(letters(1, lower), letters(1+r.IntN(20), lower), "icecream", "controller", "samplecontroller", "nicoleh", "apps", "my-group", "fake", "v1", "x509", "type", letters(63, lower))
	}
	a.Group = strings.Join(group, ".")
	a.Module = pick("example.com/", "github.com/My-Org/", "github.com/nicoleh/", "nicoleh.io/", "a.b/c.d/e_f/", "k8s.io/icecream/", "icecream.dev/k8s-controller/") +
		pick("pantry", "k8s-controller", "icecream", "Ice-Cream", "my.controller", "X", strings.ToLower(a.Kind), strings.ToLower(a.Kind)+"-controller", letters(40, lower)) +
		pick("", "", "/v2", "/v17")
	return a
}
