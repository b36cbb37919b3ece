package simulation

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	mathrand "math/rand" //nolint:depguard // what client-go uses
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// Simulation is what all of its histories have in common.
type Simulation struct {
	// Run runs the program until ctx ends. It gets the flags Args, and some more that connect
	// it to the model and keep it from opening sockets.
	Run  func(ctx context.Context, args []string) error
	Args []string
	// Kinds are what the model of the API server knows.
	Kinds []apiserver.Kind
	// NewWorld returns the world of a history.
	NewWorld func(*History) World
}

// World is everything that acts beside the program. All methods are called one at a time, and
// take no time.
type World interface {
	// Begin stores what there is before the program starts.
	Begin()
	// Act lets controllers and kubelets do what is due, and returns when there is more to do;
	// the zero time if there is nothing.
	Act() (next time.Time)
	// Edit has somebody do something, and says what; empty if there is nothing to do.
	Edit(draw *rand.Rand) string
	// Interfere has somebody act on an object at the worst of times: just before a request
	// about it arrives, or after it was answered.
	Interfere(draw *rand.Rand, verb string, key apiserver.Key) string
	// Mutate and Admit are those of [apiserver.Options], for the requests of the program.
	Mutate(apiserver.Admission)
	Admit(apiserver.Admission) error
	// Settle is called when no edits and faults follow any more. It returns how long it may
	// take until the desired state is reached.
	Settle() time.Duration
	// Check looks at a request that a process has made. It reports what is wrong by
	// [History.Fail].
	Check(Exchange)
	// CheckEnd looks at what there is when all has been quiet for some minutes.
	CheckEnd()
}

// Exchange is a request and what became of it.
type Exchange struct {
	Process       *Process
	Verb          string // create, also for an apply of what is not there
	Key           apiserver.Key
	Subresource   string
	Decided       time.Time // the earliest time at which the process can have decided on it
	IsLate        bool      // the process has given it up, and may have sent others since
	Request       apiserver.Request
	Response      apiserver.Response
	Before, After apiserver.Store

	sent   int64
	looked map[apiserver.Key]knowledge
}

// Checked returns the oldest version that a process which looks before it acts can have acted on:
// the one that it read last, or the one that was stored when it sent the request. A key without a
// name is about the last list.
func (x Exchange) Checked(key apiserver.Key) int64 {
	if read, ok := x.looked[key]; ok && !read.since.Before(x.Decided) {
		return read.version
	}
	return x.sent
}

// IsWrite reports whether the request has stored something.
func (x Exchange) IsWrite() bool { return x.After.Version != x.Before.Version }

// How long the parts of a history take.
const (
	active  = 2 * time.Minute // edits and faults
	atRest  = time.Minute     // in which nothing may be written
	longest = time.Hour       // the same, in one history of a hundred

	// retryInvalid is how long a controller can wait until it repeats a request that was
	// refused as invalid. Without faults, only an edit makes it valid.
	retryInvalid = 5 * time.Minute

	// takeover is how long it can take after the faults until a process leads that stays: each
	// of two replicas can have to wait for the end of a Lease.
	takeover = 2 * time.Minute
)

// outcome is what came of a history.
type outcome struct {
	seed uint64
	// failure says what went wrong; empty if nothing did. check is the name of what found it.
	check, failure string
	trace          []string       // says in words what happened
	happened       []string       // names the faults and edits
	counts         map[string]int // of requests, writes, edits and faults of each kind
	virtual        time.Duration
}

// History is one run of a program in a world.
type History struct {
	Simulation

	seed    uint64
	dropped map[string]bool
	dir     string // for kubeconfigs
	weather weather
	began   time.Time

	// mu is never held while time passes.
	mu sync.Mutex
	// Store is what is stored now.
	Store apiserver.Store
	// Said are the events that the processes have sent, whether or not they have arrived.
	Said [][]byte

	server    *apiserver.Server
	world     World
	states    []state
	compacted int64 // the version up to which the watch cache has forgotten everything
	watches   []*watch
	encoded   map[any][]byte // what watches send, by object
	typed     map[any]any
	hidden    [][]byte // what must be in no event and no line of a log
	processes []*Process
	started   int
	changed   chan struct{} // has room for one
	failed    chan struct{} // closed with the first failure
	isAsked   bool          // The model answers a request of the program.
	isQuiet   bool          // no more faults
	isAtRest  bool          // no more writes are wanted
	result    outcome
}

// state is what was stored from a time on.
type state struct {
	since time.Time
	store apiserver.Store
}

// weather is what kinds of faults a history has, and how often.
type weather struct {
	isCalm       bool // nothing at all goes wrong
	hasElection  bool
	hasWatchList bool // The API server sends lists by watches (KEP-3157).
	kinds        map[string]bool
	rate         float64
}

// history runs the history of a seed. Those faults and edits that are dropped do not happen.
func (s Simulation) history(t *testing.T, seed uint64, dropped map[string]bool) outcome {
	t.Helper()
	dir := t.TempDir()
	var result outcome
	synctest.Test(t, func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, seed)
		mathrand.Seed(int64(seed)) //nolint:staticcheck // It is client-go that uses it.
		h := &History{
			Simulation: s, seed: seed, dropped: dropped, dir: dir, began: time.Now(),
			encoded: map[any][]byte{}, typed: map[any]any{},
			changed: make(chan struct{}, 1), failed: make(chan struct{}),
			result: outcome{seed: seed, counts: map[string]int{}},
		}
		h.server = apiserver.New(apiserver.Options{Mutate: h.mutate, Admit: h.admit}, s.Kinds...)
		h.weather = h.forecast()
		h.run(t.Context())
		result = h.result
		result.virtual = time.Since(h.began)
	})
	return result
}

// forecast draws the weather. Few kinds of faults at a time find more than all at once.
func (h *History) forecast() weather {
	draw := h.Draw("weather")
	w := weather{isCalm: draw.IntN(4) == 0, hasElection: draw.IntN(3) == 0, hasWatchList: draw.IntN(2) == 0, kinds: map[string]bool{}}
	w.rate = 0.05 + 0.4*draw.Float64()*draw.Float64()
	for _, kind := range faultKinds {
		w.kinds[kind] = draw.IntN(2) == 0
	}
	return w
}

// run is the main goroutine of a history.
func (h *History) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	transports.Store(h)
	defer transports.Store(nil)
	logged.take()

	h.world = h.NewWorld(h)
	h.locked(h.world.Begin)
	var acting sync.WaitGroup
	acting.Go(func() { h.act(ctx) })
	replicas := 1
	if h.weather.hasElection {
		replicas = 2
	}
	for range replicas {
		h.start(ctx)
	}
	for _, step := range h.plan() {
		if !h.sleepUntil(h.began.Add(step.at)) {
			break
		}
		h.locked(step.do)
	}
	var settle time.Duration
	if h.sleepUntil(h.began.Add(active)) {
		h.locked(func() {
			h.isQuiet = true
			h.Note("all faults and edits are over")
			settle = h.world.Settle()
			if h.result.counts[invalid] > 0 {
				settle += retryInvalid
			}
			if h.weather.hasElection {
				settle += takeover
			}
		})
	}
	if h.sleepUntil(h.began.Add(active + settle)) {
		h.locked(func() {
			h.world.CheckEnd()
			h.isAtRest = true
		})
		calm := atRest
		if h.Draw("rest").IntN(100) == 0 {
			calm = longest
		}
		if h.sleepUntil(time.Now().Add(calm)) {
			h.locked(h.world.CheckEnd)
		}
	}
	cancel()
	for _, p := range h.processes {
		<-p.ended
	}
	acting.Wait()
	time.Sleep(time.Minute) // for requests on their way; goroutines that are left then fail the test
	h.locked(func() { h.checkHidden("the log", logged.take()) })
}

// locked calls f while nothing else happens.
func (h *History) locked(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// sleepUntil returns false if the history has failed before that.
func (h *History) sleepUntil(at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.failed:
	}
	select {
	case <-h.failed:
		return false
	default:
		return true
	}
}

// act lets the world act whenever something has changed or is due.
func (h *History) act(ctx context.Context) {
	for n := 0; ; n++ {
		var next time.Time
		h.locked(func() { next = h.world.Act() })
		wait := time.NewTimer(time.Hour)
		if !next.IsZero() {
			wait.Reset(max(time.Millisecond, time.Until(next)))
		}
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		case <-h.changed:
			wait.Stop()
			// The other controllers have caches and queues, too.
			if !sleep(ctx, h.Between(time.Millisecond, 60*time.Millisecond, "act", fmt.Sprint(n))) {
				return
			}
		}
	}
}

// step is something that happens at a time after the beginning.
type step struct {
	at time.Duration
	do func()
}

// plan draws the edits and what happens to processes.
func (h *History) plan() []step {
	var steps []step
	draw := h.Draw("plan")
	var at time.Duration
	edits := 2 + draw.IntN(9)
	if draw.IntN(20) == 0 {
		edits += 40 // which is more than some controllers are willing to write
	}
	for i := range edits {
		draw := h.Draw("edit", fmt.Sprint(i))
		soon, anyTime := time.Duration(draw.Int64N(int64(3*time.Second))), time.Duration(draw.Int64N(int64(active-10*time.Second)))
		if at = min(at+soon, active-10*time.Second); i == 0 || draw.IntN(2) == 0 {
			at = anyTime
		}
		steps = append(steps, step{at, func() {
			if name := fmt.Sprintf("edit %d", i); !h.dropped[name] {
				if what := h.world.Edit(draw); what != "" {
					h.happened("edit", name, what)
				}
			}
		}})
	}
	if !h.weather.isCalm {
		steps = append(steps, h.accidents(draw.IntN(3))...)
	}
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	return steps
}

// accidents draws what happens to whole processes and to the API server.
func (h *History) accidents(n int) []step {
	var steps []step
	for i := range n {
		draw := h.Draw("accident", fmt.Sprint(i))
		name := fmt.Sprintf("accident %d", i)
		kinds := []string{"kill", "stop", "compaction", "compaction"}
		if h.weather.hasElection {
			kinds = append(kinds, "partition", "partition", "lease cut", "lease cut")
		}
		kind := kinds[draw.IntN(len(kinds))]
		long := time.Duration(draw.Int64N(int64(90 * time.Second)))
		steps = append(steps, step{time.Duration(draw.Int64N(int64(active - 10*time.Second))), func() {
			if h.dropped[name] {
				return
			}
			var living []*Process
			for _, p := range h.processes {
				if !p.hasEnded && !p.isDead {
					living = append(living, p)
				}
			}
			if len(living) == 0 {
				return
			}
			p := living[draw.IntN(len(living))]
			switch kind {
			case "kill":
				h.happened(kind, name, p.Name+" is killed")
				p.die()
				p.cancel()
			case "stop":
				h.happened(kind, name, p.Name+" is told to stop")
				p.cancel()
			case "compaction":
				h.happened(kind, name, "the API server forgets its history, and cuts all watches")
				h.compacted = h.Store.Version
				for _, w := range slices.Clone(h.watches) {
					w.cut()
				}
			case "partition":
				h.happened(kind, name, fmt.Sprintf("%s is cut off for %s", p.Name, long))
				p.frozenUntil = time.Now().Add(long)
			case "lease cut":
				h.happened(kind, name, fmt.Sprintf("%s cannot reach the Lease for %s", p.Name, long))
				p.leaseCutUntil = time.Now().Add(long)
			}
		}})
	}
	return steps
}

// Draw returns the random numbers for something.
func (h *History) Draw(what ...string) *rand.Rand {
	hash := fnv.New64a()
	for _, word := range what {
		hash.Write([]byte(word))
		hash.Write([]byte{0})
	}
	return rand.New(rand.NewPCG(h.seed, hash.Sum64()))
}

// Between draws a duration.
func (h *History) Between(least, most time.Duration, what ...string) time.Duration {
	return durationBetween(h.Draw(what...), least, most)
}

func durationBetween(draw *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(draw.Int64N(int64(most-least)))
}

// happened notes a fault or an edit, which can be dropped by its name.
func (h *History) happened(kind, name, what string) {
	h.result.happened = append(h.result.happened, name)
	h.result.counts[kind]++
	h.Note("(%s) %s", name, what)
}

// Note adds a line to the trace.
func (h *History) Note(format string, args ...any) {
	h.result.trace = append(h.result.trace, fmt.Sprintf("%9.3fs  ", time.Since(h.began).Seconds())+fmt.Sprintf(format, args...))
}

// Fail reports that a check has found something wrong. The history ends.
func (h *History) Fail(check, format string, args ...any) {
	if h.result.check != "" {
		return
	}
	h.result.check, h.result.failure = check, fmt.Sprintf(format, args...)
	h.Note("FAILED: %s: %s", check, h.result.failure)
	for _, key := range h.Store.Keys(func(key apiserver.Key) bool { return key.Resource.Resource != "events" }) {
		h.Note("%s", inWords(key, h.Store.Objects[key]))
	}
	close(h.failed)
}

// inWords says what there is of an object.
func inWords(key apiserver.Key, obj *unstructured.Unstructured) string {
	words := []string{fmt.Sprintf("there is %s, version %s", Describe(key), obj.GetResourceVersion())}
	for _, owner := range obj.GetOwnerReferences() {
		words = append(words, fmt.Sprintf("of %s %s", owner.Kind, owner.Name))
	}
	if obj.GetDeletionTimestamp() != nil {
		words = append(words, fmt.Sprintf("being deleted, held by %v", obj.GetFinalizers()))
	}
	return strings.Join(words, ", ")
}

// IsCalm reports whether nothing goes wrong in this history.
func (h *History) IsCalm() bool { return h.weather.isCalm }

// Hide makes a value fail the history if it is in an event or a line of a log: as it is, as
// base64, or as package fmt prints bytes.
func (h *History) Hide(value []byte) {
	h.hidden = append(h.hidden, value, []byte(base64.StdEncoding.EncodeToString(value)), fmt.Append(nil, value))
}

// Hidden returns what a text contains of what is hidden; nil if there is nothing.
func (h *History) Hidden(text []byte) []byte {
	for _, value := range h.hidden {
		if bytes.Contains(text, value) {
			return value
		}
	}
	return nil
}

func (h *History) checkHidden(where string, text []byte) {
	if value := h.Hidden(text); value != nil {
		h.Fail("disclosure", "there is %s in %s: %s", value, where, text)
	}
}

// mutate and admit are those of the world, for the requests of the program.
func (h *History) mutate(a apiserver.Admission) {
	if h.isAsked {
		h.world.Mutate(a)
	}
}

func (h *History) admit(a apiserver.Admission) error {
	if !h.isAsked {
		return nil
	}
	return h.world.Admit(a)
}

// commit stores what somebody has made of the store, and tells watches.
func (h *History) commit(after apiserver.Store) {
	if after.Version == h.Store.Version {
		return
	}
	before := h.Store
	h.Store = after
	h.states = append(h.states, state{time.Now(), after})
	for _, w := range h.watches {
		w.add(before, after)
	}
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// Since returns the states that a cache can have shown that showed a version at first, and
// what is stored now.
func (h *History) Since(version int64) []apiserver.Store {
	first, _ := slices.BinarySearchFunc(h.states, version, func(s state, v int64) int { return int(s.store.Version - v) })
	if first == len(h.states) || h.states[first].store.Version > version {
		first = max(0, first-1)
	}
	var stores []apiserver.Store
	for _, s := range h.states[first:] {
		stores = append(stores, s.store)
	}
	return stores
}

// SinceTime returns what was stored at that time and later: what a process can have read that has
// decided on a request since then.
func (h *History) SinceTime(at time.Time) (stores []apiserver.Store) {
	for i, s := range h.states {
		if i+1 == len(h.states) || h.states[i+1].since.After(at) {
			stores = append(stores, s.store)
		}
	}
	return stores
}

// kubeconfig returns the name of a file that leads to the model, by the name of the process.
func (h *History) kubeconfig(process string) string {
	name := filepath.Join(h.dir, process)
	content := strings.ReplaceAll(kubeconfig, "PROCESS", process)
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		h.Fail("simulation", "%v", err)
	}
	return name
}
