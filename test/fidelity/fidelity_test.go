package fidelity

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
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
	server := apiserver.New(apiserver.Options{Version: versionText, UID: uidText}, kinds...)
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

// kinds are all kinds of the model but those of which no request is compared.
var kinds = []apiserver.Kind{
	apiserver.Deployments(), apiserver.StatefulSets(), apiserver.Pods(), apiserver.Secrets(), apiserver.Nodes(), apiserver.Namespaces(), apiserver.Leases(),
	apiserver.CustomResource(icecreams, "Icecream", "deploymentName"),
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
	if outcome := s.send(s.createNew(namespaces, s.namespace)); outcome != equal {
		return outcome
	}
	for range perSequence {
		r := s.next()
		if outcome := s.send(r); outcome != equal {
			return outcome
		}
		if path.Base(r.Path) == "eviction" {
			// The response does not show which version the Pod has now.
			if outcome := s.send(s.request(http.MethodGet, pods, s.namespace, path.Base(path.Dir(r.Path)), nil)); outcome != equal {
				return outcome
			}
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
func (s *sequence) send(r request) outcome {
	now := awaitQuietSecond()
	response := s.real.send(s.t, onWire(s.t, s.toReal(r.Request)))
	isLate := func() bool { return time.Now().Unix() != now.Unix() }
	s.sent++
	s.history = append(s.history, fmt.Sprintf("%d: %s %s?%s (%s) -> %d\n\t%s", s.sent, r.Method, r.Path, r.Query.Encode(), r.ContentType, response.Code, r.Body))
	if r.byOthers {
		return s.adopt(r, response, now, isLate())
	}
	after, answer := s.server.Answer(s.store, now, onWire(s.t, r.Request))
	if isLate() && response.Code == answer.Code {
		return tooSlow // The times in the bodies may differ, whoever is right.
	}
	s.record(r.Request, answer)
	want, is := decode(s.t, response.Body), decode(s.t, answer.Body)
	if r.Query.Has("dryRun") { // which makes up a UID
		for _, response := range []map[string]any{want, is} {
			unstructured.RemoveNestedField(response, "metadata", "uid")
		}
	}
	s.bind(is, want)
	s.takeListVersion(want, is)
	want, is = s.toModel(essence(want)).(object), essence(is)
	if diff := cmp.Diff(want, is); response.Code != answer.Code || diff != "" {
		s.t.Errorf("-seed=%d: the API server answers %d, the model %d (-API server +model):\n%s\nrequests about it:\n%s",
			s.seed, response.Code, answer.Code, diff, strings.Join(s.recent(r.Request), "\n"))
		return failed
	}
	s.completeNamespaces(after)
	s.accept(after)
	s.steps = append(s.steps, after)
	return equal
}

// adopt has the model store what another program has written.
func (s *sequence) adopt(r request, response apiserver.Response, now time.Time, isLate bool) outcome {
	if isLate {
		return tooSlow
	}
	written := decode(s.t, response.Body)
	if response.Code >= http.StatusMultipleChoices {
		s.t.Errorf("-seed=%d: another program is refused: %s\n%s", s.seed, response.Body, strings.Join(s.recent(r.Request), "\n"))
		return failed
	}
	obj := &unstructured.Unstructured{Object: asJSON(s.toModel(written).(object))}
	if s.models[versionOf(written)] != "" {
		return equal // Nothing has changed.
	}
	after, err := s.server.Put(s.store, now, obj)
	if err != nil {
		s.t.Fatal(err)
	}
	s.bind(obj.Object, written)
	s.accept(after)
	s.steps = append(s.steps, after)
	return equal
}

// essence returns what is compared of a body: of an error, the code, the reason, and the
// reasons and fields of its causes.
func essence(body object) object {
	if body["kind"] != "Status" {
		return body
	}
	causes, _, _ := unstructured.NestedSlice(body, "details", "causes")
	is := object{}
	for _, cause := range causes {
		is[fmt.Sprint(cause.(object)["reason"], " ", cause.(object)["field"])] = true
	}
	return object{"status": body["status"], "code": body["code"], "reason": body["reason"], "causes": is}
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
		delete(response, "metadata") // Of custom kinds, there is also the place to continue.
	}
}

// listVersion returns the version of a list, or nothing if the response is none.
func listVersion(response map[string]any) string {
	if _, isList := response["items"]; !isList {
		return ""
	}
	return versionOf(response)
}

func versionOf(response map[string]any) string {
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
