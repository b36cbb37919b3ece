package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"go/format"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

var (
	seed  = flag.Uint64("seed", 0, "seed of hostile names; 0 is a new one")
	count = flag.Int("names", 20, "number of forks with hostile names")
)

// optional are the controllers that a fork may have.
var optional = []string{"podtimestamp", "secretsync", "nodereboot"}

// neutral has names that occur nowhere else, so that a fork by these names can be renamed
// without any doubt about what is a name.
var neutral = Answers{Module: "wxyzq.example/zqjx", Group: "zqvk.wxyzq.example", Version: "v7alpha9", Kind: "Zqwk", Plural: "zqwkxen", Short: "zqk"}

// A fork by hostile names is the same as a fork by neutral ones whose names are replaced:
// nothing is taken for a name that is none, and no name is overlooked.
func TestHostileNames(t *testing.T) {
	random := newRand(t)
	forks := neutralForks(t, repository(t))
	var mu sync.Mutex
	next := func() Answers {
		mu.Lock()
		defer mu.Unlock()
		return hostile(random)
	}
	var done, refused atomic.Int64
	var workers errgroup.Group
	for range 2 {
		workers.Go(func() error {
			for done.Load() < int64(*count) && !t.Failed() {
				a := next()
				base := forks[strings.Join(a.Controllers, ",")]
				result, err := base.source.fork(kept{Answers: a})
				if err != nil {
					if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "manifest") {
						t.Errorf("%+v: %v", a, err)
					}
					refused.Add(1)
					t.Logf("refused: %v", err)
					continue
				}
				done.Add(1)
				if err := check(base, a, result); err != nil {
					t.Errorf("%+v: %v", a, err)
				}
			}
			return nil
		})
	}
	if err := workers.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d forks, and %d answers that were refused in one line", done.Load(), refused.Load())
	if refused.Load() > 4*done.Load() {
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

// A made fork has its files, and what they were made from.
type made struct {
	source source
	files  []file
}

// fork makes a fork of the template's files.
func fork(t *testing.T, template []file, a Answers) made {
	t.Helper()
	source, err := sourceFor(template, a.Controllers)
	if err != nil {
		t.Fatal(err)
	}
	files, err := source.fork(kept{Answers: a})
	if err != nil {
		t.Fatal(err)
	}
	return made{source, files}
}

// neutralForks returns a fork by neutral names for each choice of controllers.
func neutralForks(t *testing.T, files []file) map[string]made {
	t.Helper()
	forks := map[string]made{}
	for set := range 1 << len(optional) {
		a := neutral
		for i, name := range optional {
			if set&(1<<i) != 0 {
				a.Controllers = append(a.Controllers, name)
			}
		}
		base := fork(t, files, a)
		requireNothingLeft(t, a, base.files)
		forks[strings.Join(a.Controllers, ",")] = base
	}
	return forks
}

func check(base made, a Answers, result []file) error {
	neutralNames, err := neutral.Names()
	if err != nil {
		return err
	}
	names, err := a.Names()
	if err != nil {
		return err
	}
	again, err := base.source.fork(kept{Answers: a})
	if err != nil {
		return err
	}
	if !slices.EqualFunc(result, again, equal) {
		return fmt.Errorf("the same answers give other bytes")
	}
	for _, f := range result {
		if err := valid(f); err != nil {
			return err
		}
	}
	if err := validNames(names); err != nil {
		return err
	}
	chosen, err := base.source.scope.renamer(template(), names)
	if err != nil {
		return err
	}
	want, err := newRenamer(neutralNames, chosen.to, chosen.variable).all(base.files)
	if err != nil {
		return err
	}
	return sameFiles(want, result)
}

// sameFiles reports how files are not those that are wanted. The answers may be others.
func sameFiles(want, got []file) error {
	if diff := cmp.Diff(paths(want), paths(got)); diff != "" {
		return fmt.Errorf("the files are others (-want +got):\n%s", diff)
	}
	for i := range want {
		if want[i].path == ".template.yaml" || equal(want[i], got[i]) {
			continue
		}
		return fmt.Errorf("%s differs (-want +got):\n%s", want[i].path, cmp.Diff(string(want[i].content), string(got[i].content)))
	}
	return nil
}

func equal(a, b file) bool {
	return a.path == b.path && a.isExecutable == b.isExecutable && bytes.Equal(a.content, b.content)
}

func paths(files []file) (paths []string) {
	for _, f := range files {
		paths = append(paths, f.path)
	}
	return paths
}

// valid reports what is wrong with a file by itself.
func valid(f file) error {
	switch ext := path.Ext(f.path); {
	case ext == ".go":
		if formatted, err := format.Source(f.content); err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		} else if !bytes.Equal(formatted, f.content) {
			return fmt.Errorf("%s is not formatted", f.path)
		}
	case ext == ".json" && !json.Valid(f.content):
		return fmt.Errorf("%s is not valid JSON", f.path)
	case (ext == ".yaml" || ext == ".yml") && !strings.Contains(f.path, "/templates/"):
		for document := range bytes.SplitSeq(f.content, []byte("\n---\n")) {
			var content any
			if err := yaml.UnmarshalStrict(document, &content); err != nil {
				return fmt.Errorf("%s: %w", f.path, err)
			}
		}
	}
	return nil
}

// manifests are the files that contain objects, with the names of the template.
var manifests = sync.OnceValues(func() ([]file, error) {
	var found []file
	files, err := committed(context.Background(), "../../..")
	for _, f := range files {
		if path.Ext(f.path) == ".yaml" && strings.HasPrefix(f.path, "artifacts/") && !strings.Contains(f.path, "monitoring") {
			found = append(found, f)
		}
	}
	return found, err
})

// validNames reports what the API server would refuse in the objects of the manifests
// under these names.
func validNames(names Names) error {
	files, err := manifests()
	if err != nil {
		return err
	}
	r := newRenamer(template(), names, "x")
	for _, f := range files {
		for document := range strings.SplitSeq(r.Text(string(f.content)), "\n---\n") {
			var object unstructured.Unstructured
			if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
				return fmt.Errorf("%s: %w", f.path, err)
			}
			if object.GetName() == "" {
				continue // a comment
			}
			name := validation.NameIsDNSSubdomain
			switch object.GetKind() {
			case "Namespace":
				name = validation.ValidateNamespaceName
			case "Service":
				name = validation.NameIsDNS1035Label
			}
			where := field.NewPath(object.GetKind(), object.GetName())
			problems := validation.ValidateObjectMetaAccessor(&object, object.GetNamespace() != "", name, where)
			problems = append(problems, metav1validation.ValidateLabels(object.GetLabels(), where.Child("labels"))...)
			if err := problems.ToAggregate(); err != nil {
				return fmt.Errorf("%s: %w", f.path, err)
			}
		}
	}
	return nil
}

// hostile returns answers that a tool may stumble over, some of which have to be refused.
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
	for _, name := range optional {
		if r.IntN(4) == 0 {
			a.Controllers = append(a.Controllers, name)
		}
	}
	return a
}
