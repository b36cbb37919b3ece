package fidelity

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

var (
	requests = flag.Int("requests", 5000, "how many requests to send")
	seed     = flag.Uint64("seed", 0, "the seed of the first sequence; 0 takes one from the clock")
)

const (
	perSequence = 100 // requests, after which a new namespace begins
	maxFailures = 5   // after which there is nothing new to learn
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("skipped: this test starts a cluster")
		return
	}
	os.Exit(m.Run())
}

// The model answers each request as the API server does.
func TestFidelity(t *testing.T) {
	reality := startReal(t)
	server := apiserver.New(apiserver.Options{Version: versionText, UID: uidText}, kinds(t)...)
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano()) //nolint:gosec // any number is a seed
	}
	t.Logf("-seed=%d", first)
	seen := map[string]int{}
	sent, events, failures, givenUp := 0, 0, 0, 0
	for i := uint64(0); sent < *requests && failures < maxFailures; i++ {
		s := newSequence(t, reality, server, first+i, seen)
		switch s.run() {
		case failed:
			failures++
		case tooSlow:
			givenUp++
		case equal:
		}
		sent += s.sent
		events += s.compared
	}
	for _, combination := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%6d %s", seen[combination], combination)
	}
	t.Logf("%d requests, %d combinations of resource, verb, code and reason; %d events; %d sequences given up", sent, len(seen), events, givenUp)
	if givenUp*perSequence > sent/2 {
		t.Errorf("%d sequences had a request that lasted from one second to the next: too many to compare the rest", givenUp)
	}
}

// kinds returns all kinds of the model, the custom one as this repository defines it.
func kinds(t *testing.T) []apiserver.Kind {
	t.Helper()
	manifest, err := os.ReadFile("../../artifacts/examples/crd-icecream.yaml")
	if err != nil {
		t.Fatal(err)
	}
	icecreams, err := apiserver.Definition(manifest, validateIcecream)
	if err != nil {
		t.Fatal(err)
	}
	return []apiserver.Kind{
		apiserver.Deployments(), apiserver.ReplicaSets(), apiserver.Pods(), apiserver.Secrets(),
		apiserver.Nodes(), apiserver.Namespaces(), apiserver.Leases(), icecreams,
	}
}

// validateIcecream returns what is wrong with the Icecreams that the test generates: the number
// of replicas, or what an apply leaves of an object that has lost fields.
func validateIcecream(_, obj *unstructured.Unstructured) field.ErrorList {
	var errs field.ErrorList
	for _, path := range []*field.Path{field.NewPath("spec", "resources"), field.NewPath("spec", "resources", "limits")} {
		if value, isSet, err := unstructured.NestedFieldNoCopy(obj.Object, strings.Split(path.String(), ".")...); err == nil && isSet && value == nil {
			errs = append(errs, field.TypeInvalid(path, "null", path.String()+` in body must be of type object: "null"`))
		}
	}
	conditions, isSet, _ := unstructured.NestedFieldNoCopy(obj.Object, "status", "conditions")
	if isSet && conditions == nil {
		errs = append(errs, field.TypeInvalid(field.NewPath("status", "conditions"), "null", `conditions in body must be of type array: "null"`))
	}
	all, _ := conditions.([]any)
	for i, condition := range all {
		for _, name := range []string{"lastTransitionTime", "message", "reason", "status", "type"} {
			if _, isSet := condition.(map[string]any)[name]; !isSet {
				errs = append(errs, field.Required(field.NewPath("status", "conditions").Index(i).Child(name), ""))
			}
		}
	}
	if replicas, _, err := unstructured.NestedInt64(obj.Object, "spec", "replicas"); err == nil && replicas < 0 {
		errs = append(errs,
			field.Invalid(field.NewPath("spec", "replicas"), replicas, "spec.replicas in body should be greater than or equal to 0"),
			field.Invalid(field.NewPath(".spec.replicas"), replicas, "should be a non-negative integer")) // for the scale subresource
	}
	return errs
}

// outcome is how a sequence has ended.
type outcome int

const (
	equal outcome = iota
	failed
	tooSlow
)

// sequence is a number of requests to a namespace of its own.
type sequence struct {
	t      *testing.T
	real   *realServer
	server *apiserver.Server
	seed   uint64
	seen   map[string]int

	*generator
	*dictionary
	start string            // the real version before the first request
	steps []apiserver.Store // after each request
	lists []version         // of the lists so far
	sent  int

	compared int      // how many events
	history  []string // the requests, for people
}

func newSequence(t *testing.T, reality *realServer, server *apiserver.Server, seed uint64, seen map[string]int) *sequence {
	return &sequence{
		t: t, real: reality, server: server, seed: seed, seen: seen,
		generator:  newGenerator(rand.New(rand.NewPCG(seed, 0)), namespaceFor(seed)), //nolint:gosec // tests are to be repeated
		dictionary: newDictionary(),
	}
}

// namespaceFor returns the name of a sequence's namespace. It has no digits, because toModel
// would take them for a version.
func namespaceFor(seed uint64) string {
	letter := func(digit rune) rune {
		if digit <= '9' {
			return digit - '0' + 'g'
		}
		return digit
	}
	return "fidelity-" + strings.Map(letter, strconv.FormatUint(seed, 16))
}

func (s *sequence) run() outcome {
	s.start = s.real.version(s.t)
	if outcome := s.send(s.createNamespace(s.namespace)); outcome != equal {
		return outcome
	}
	for range perSequence {
		if outcome := s.send(s.next()); outcome != equal {
			return outcome
		}
	}
	for _, request := range s.lastRequests() {
		if outcome := s.send(request); outcome != equal {
			return outcome
		}
	}
	if !s.compareWatches() || !s.compareOrder() {
		return failed
	}
	return equal
}

// send sends a request to both servers and compares the responses.
func (s *sequence) send(r apiserver.Request) outcome {
	now := awaitQuietSecond()
	response := s.real.send(s.t, onWire(s.t, s.toReal(r)))
	isLate := time.Now().Unix() != now.Unix()
	after, answer := s.server.Answer(s.store, now, onWire(s.t, r))
	if isLate && response.Code == answer.Code {
		return tooSlow // The times in the bodies may differ, whoever is right.
	}
	s.sent++
	s.record(r, answer)
	want, is := decode(s.t, response.Body), decode(s.t, answer.Body)
	s.bind(is, want)
	s.takeListVersion(want, is)
	want = s.toModel(want).(map[string]any)
	s.adoptFinalizers(r, after, want, is)
	sortParts(want)
	sortParts(is)
	s.history = append(s.history, fmt.Sprintf("%d: %s %s?%s (%s) -> %d\n\t%s", s.sent, r.Method, r.Path, r.Query.Encode(), r.ContentType, answer.Code, r.Body))
	if diff := cmp.Diff(want, is); response.Code != answer.Code || diff != "" {
		s.t.Errorf("-seed=%d: the API server answers %d, the model %d (-API server +model):\n%s\nrequests about it:\n%s",
			s.seed, response.Code, answer.Code, diff, strings.Join(s.recent(r), "\n"))
		return failed
	}
	s.completeNamespaces(after)
	s.accept(after)
	s.steps = append(s.steps, after)
	return equal
}

// completeNamespaces gives new namespaces what a controller would, and what their Pods need.
func (s *sequence) completeNamespaces(after apiserver.Store) {
	for key := range after.Objects {
		if _, existed := s.store.Objects[key]; key.Resource == namespaces.GroupResource() && !existed {
			s.real.createServiceAccount(s.t, key.Name)
		}
	}
}

// record counts a combination of resource, verb, code and reason.
func (s *sequence) record(r apiserver.Request, answer apiserver.Response) {
	verb, key, subresource, _ := s.server.Parse(r)
	if subresource != "" {
		verb += " " + subresource
	}
	if verb == "patch" {
		verb += " " + r.ContentType
	}
	var status metav1.Status
	if err := json.Unmarshal(answer.Body, &status); err != nil || status.Kind != "Status" {
		status.Reason = ""
	}
	s.seen[fmt.Sprintf("%s %s %d %s", key.Resource.Resource, verb, answer.Code, status.Reason)]++
}

// awaitQuietSecond waits until the present second is not about to end, and returns the time.
func awaitQuietSecond() time.Time {
	const margin = 60 * time.Millisecond
	now := time.Now()
	if left := now.Truncate(time.Second).Add(time.Second).Sub(now); left < margin {
		time.Sleep(left)
	}
	return time.Now()
}

// takeListVersion moves the versions of a list from the responses to s.lists. They correspond
// to each other only in their order, because the real one also counts what is written
// elsewhere in the cluster.
func (s *sequence) takeListVersion(want, is map[string]any) {
	list := version{model: listVersion(is), real: listVersion(want), isList: true}
	if list.model == "" || list.real == "" {
		return // If only one is missing, that is a difference.
	}
	s.lists = append(s.lists, list)
	for _, response := range []map[string]any{want, is} {
		unstructured.RemoveNestedField(response, "metadata", "resourceVersion")
	}
}

// listVersion returns the version of a list, or nothing if the response is none.
func listVersion(response map[string]any) string {
	if _, isList := response["items"]; !isList {
		return ""
	}
	text, _, _ := unstructured.NestedString(response, "metadata", "resourceVersion")
	return text
}

func decode(t *testing.T, body []byte) map[string]any {
	t.Helper()
	var content map[string]any
	if err := json.Unmarshal(body, &content); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return content
}

// recent returns the last requests about the object of a request.
func (s *sequence) recent(r apiserver.Request) []string {
	const most = 8
	object := strings.TrimSuffix(r.Path, "/status")
	collection := "POST " + path.Dir(object) + "?"
	about := slices.DeleteFunc(slices.Clone(s.history), func(line string) bool {
		return !strings.Contains(line, object) && !strings.Contains(line, collection)
	})
	return about[max(0, len(about)-most):]
}
