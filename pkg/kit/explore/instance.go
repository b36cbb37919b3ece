package explore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/leader"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// Instance is a controller that was made to be explored.
type Instance struct {
	// Loop is the controller's loop.
	Loop *worker.Loop
	// Memory is everything else that the controller remembers, by name.
	Memory map[string]Memory
}

// Memory is a part of what a process remembers.
type Memory struct {
	get func() any
	set func(raw []byte) error
}

// MemoryOf returns a part of the memory: get returns all of it, and set replaces it by
// what get has returned at another time. It has to survive as JSON. What no longer has an
// effect should be left out, because states with different memories are different.
func MemoryOf[S any](get func() S, set func(S)) Memory {
	return Memory{
		get: func() any { return get() },
		set: func(raw []byte) error {
			var state S
			if err := json.Unmarshal(raw, &state); err != nil {
				return err
			}
			set(state)
			return nil
		},
	}
}

// instance is the shipped code of one process, with all that it depends on.
type instance struct {
	system   *system
	steps    *worker.Steps
	memory   map[string]Memory
	caches   []*informer.Manual
	clock    *stepClock
	waits    bool // Program.Waits
	isLeader bool
	panicked string

	sent     chan *http.Request
	received chan received
	returned chan struct{}
	// isOver is set when the rest of the running sync no longer matters.
	isOver bool
}

// received is what a client gets for a request.
type received struct {
	response *http.Response
	err      error
}

var errOver = errors.New("explored no further")

// newInstance makes an instance of the program.
func newInstance(ctx context.Context, sys *system, program int) (*instance, error) {
	in := &instance{
		system:   sys,
		clock:    &stepClock{at: now},
		waits:    sys.setup.Programs[program].Waits,
		sent:     make(chan *http.Request),
		received: make(chan received),
		returned: make(chan struct{}),
	}
	caches := informer.NewManual(in.clock)
	made, err := sys.setup.Programs[program].New(manager.Dependencies{
		Config: &rest.Config{
			Host:      "http://explored",
			QPS:       -1,
			Transport: leader.FenceOf(func() bool { return in.isLeader }, in),
		},
		Caches:   caches,
		Recorder: recorder{},
		Clock:    in.clock,
	})
	if err != nil {
		return nil, err
	}
	ctx = klog.NewContext(context.WithoutCancel(ctx), funcr.New(func(_, args string) {
		if strings.Contains(args, "panic: ") {
			in.panicked = args
		}
	}, funcr.Options{}))
	if in.steps, err = made.Loop.Steps(ctx); err != nil {
		return nil, err
	}
	in.memory, in.caches = made.Memory, caches.Manual()
	return in, nil
}

// recorder drops events: they change nothing that is explored.
type recorder struct{}

func (recorder) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// RoundTrip implements http.RoundTripper. It waits until the next part is played.
func (in *instance) RoundTrip(request *http.Request) (*http.Response, error) {
	if in.isOver {
		return nil, errOver
	}
	in.sent <- request
	answer := <-in.received
	if answer.response != nil {
		answer.response.Request = request
	}
	return answer.response, answer.err
}

// outcome is what came of letting a process do one thing.
type outcome struct {
	memory  text
	due     int32 // the name of the object that is due, as a template; 0 if none is
	next    int64 // nanoseconds until something happens by itself, or -1
	request text  // what the sync has sent; none if it has ended
	read    reads
	wrong   string // a panic, a needless read, or what Checks.Sent says
}

// play plays the parts of a sync up to its next request, or any other single part.
func (in *instance) play(parts []situation) (out outcome, err error) {
	var request *http.Request
	var known knowledge
	var passed time.Duration
	var before []int
	for _, part := range parts {
		before = in.readsSoFar()
		if err := in.restore(part); err != nil {
			return out, err
		}
		switch part.action {
		case begins:
			err = in.inOrder(func() error { in.steps.Feed(); return nil })
		case sees:
			err = in.inOrder(func() error { return in.see(part) })
		case fills:
			err = in.inOrder(func() error { return in.relist(part) })
		case passes:
			passed = time.Duration(part.arg)
			in.clock.advance(passed)
		case syncs:
			in.isOver, in.panicked = false, ""
			go func() {
				in.steps.Sync()
				in.returned <- struct{}{}
			}()
			request = in.await()
		case continues:
			if request == nil {
				return out, errors.New("a sync did not do the same again: it has sent no request; does it depend on something that is not in its memory?")
			}
			answer, err := in.system.answer(in.system.render(part.extra))
			if err != nil {
				return out, err
			}
			known.add(request, answer)
			in.received <- answer
			request = in.await()
		default:
			return out, fmt.Errorf("a process has no part in action %d", part.action)
		}
		if err != nil {
			return out, err
		}
	}
	if out, err = in.capture(passed); err != nil {
		return out, err
	}
	out.read = in.readSince(before, parts[len(parts)-1])
	if request != nil {
		r, err := readRequest(request)
		in.abandon()
		if err != nil {
			return out, err
		}
		if out.request, err = in.system.requestText(r); err != nil {
			return out, err
		}
		if !in.waits {
			out.wrong = known.checkRead(in.system.server, request, r)
		}
	}
	out.wrong = cmp.Or(in.panicked, out.wrong)
	return out, nil
}

// readsSoFar returns how often each cache was read.
func (in *instance) readsSoFar() []int {
	reads := make([]int, len(in.caches))
	for i, c := range in.caches {
		reads[i] = c.Reads()
	}
	return reads
}

// readSince returns which caches were read. An event is compared with what the cache has of
// its object, and a list with all of it.
func (in *instance) readSince(before []int, last situation) (read reads) {
	switch last.action {
	case fills:
		return everything
	case sees:
		read = 1 << last.arg
	default:
	}
	for i, now := range in.readsSoFar() {
		if now > before[i] {
			read |= 1 << i
		}
	}
	return read
}

// await waits until the sync sends a request, or returns.
func (in *instance) await() *http.Request {
	select {
	case request := <-in.sent:
		return request
	case <-in.returned:
		return nil
	}
}

// abandon ends the running sync. What it does from now on is forgotten.
func (in *instance) abandon() {
	in.isOver = true
	in.received <- received{err: errOver}
	<-in.returned
}

// restore makes everything as it is in the situation.
func (in *instance) restore(s situation) error {
	in.clock.reset(now)
	in.isLeader = s.phase == leading
	for i := range in.caches {
		c := s.caches[i]
		objects, err := in.objects(i, c.objects)
		if err != nil {
			return err
		}
		if err := in.caches[i].Fill(objects, versionText(c.class, c.version)); err != nil {
			return err
		}
	}
	var memory map[string]json.RawMessage
	if s.memory.template != 0 {
		if err := json.Unmarshal([]byte(in.system.render(s.memory)), &memory); err != nil {
			return err
		}
	}
	var loop worker.StepsState
	if raw := memory[loopMemory]; raw != nil {
		if err := json.Unmarshal(raw, &loop); err != nil {
			return err
		}
	}
	in.steps.SetState(loop)
	for _, name := range slices.Sorted(maps.Keys(in.memory)) {
		raw := memory[name]
		if raw == nil {
			raw = []byte("null")
		}
		if err := in.memory[name].set(raw); err != nil {
			return fmt.Errorf("restoring %s: %w", name, err)
		}
	}
	return nil
}

// loopMemory is the name of what the loop remembers.
const loopMemory = "loop"

// capture returns what the process remembers now.
func (in *instance) capture(passed time.Duration) (out outcome, err error) {
	memory := map[string]any{loopMemory: in.steps.State()}
	for name, part := range in.memory {
		memory[name] = part.get()
	}
	raw, err := json.Marshal(memory)
	if err != nil {
		return out, err
	}
	out.memory = in.system.parse(string(raw), 0, true)
	for i, g := range in.system.get(out.memory.template).gaps {
		if g.kind == exactGap {
			out.memory.values[i] -= int64(passed)
		}
	}
	if due, ok := in.steps.Due(); ok {
		out.due = in.system.id([]byte(due.String()))
	}
	out.next = -1
	for _, next := range []func() (time.Time, bool){in.steps.Next, in.clock.next} {
		if at, ok := next(); ok {
			left := max(0, int64(at.Sub(in.clock.Now())))
			if out.next < 0 || left < out.next {
				out.next = left
			}
		}
	}
	return out, nil
}

// inOrder calls add, which adds objects to the queue, and sorts these by name: programs may
// add them in a random order, but have to do the same again.
func (in *instance) inOrder(add func() error) error {
	before := len(in.steps.State().Ready)
	if err := add(); err != nil {
		return err
	}
	state := in.steps.State()
	slices.Sort(state.Ready[before:])
	in.steps.SetState(state)
	return nil
}

// see lets a cache see an event.
func (in *instance) see(s situation) error {
	object, err := in.object(int(s.arg), object{s.key, s.extra})
	if err != nil {
		return err
	}
	kinds := map[eventKind]watch.EventType{added: watch.Added, modified: watch.Modified, deleted: watch.Deleted}
	return in.caches[s.arg].Receive(watch.Event{Type: kinds[s.event], Object: object})
}

// relist fills a cache anew: with what the situation has as one cache more.
func (in *instance) relist(s situation) error {
	fresh := s.caches[len(s.caches)-1]
	objects, err := in.objects(int(s.arg), fresh.objects)
	if err != nil {
		return err
	}
	return in.caches[s.arg].Replace(objects, versionText(fresh.class, fresh.version))
}

func (in *instance) objects(cache int, objects []object) ([]runtime.Object, error) {
	typed := make([]runtime.Object, 0, len(objects))
	for _, o := range objects {
		object, err := in.object(cache, o)
		if err != nil {
			return nil, err
		}
		typed = append(typed, object)
	}
	return typed, nil
}

// object returns an object as the client of a cache decodes it.
func (in *instance) object(cache int, o object) (runtime.Object, error) {
	return in.system.typed(in.caches[cache], o.text)
}

// wire is a request or a response as it is kept.
type wire struct {
	Method      string          `json:"method,omitempty"`
	Path        string          `json:"path,omitempty"`
	Query       string          `json:"query,omitempty"`
	ContentType string          `json:"contentType,omitempty"`
	UserAgent   string          `json:"userAgent,omitempty"`
	Code        int             `json:"code,omitempty"`
	Lost        bool            `json:"lost,omitempty"` // there is no response
	Body        json.RawMessage `json:"body,omitempty"`
}

// readRequest returns a request whose body is JSON.
func readRequest(request *http.Request) (apiserver.Request, error) {
	r, err := apiserver.ReadRequest(request)
	if err == nil && r.ContentType == runtime.ContentTypeProtobuf {
		err = toJSON(&r)
	}
	return r, err
}

// toJSON replaces a body in protobuf.
func toJSON(r *apiserver.Request) error {
	object, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(r.Body, nil, nil)
	if err != nil {
		return err
	}
	object.GetObjectKind().SetGroupVersionKind(*gvk)
	r.ContentType = runtime.ContentTypeJSON
	r.Body, err = json.Marshal(object)
	return err
}

// answer returns what a client gets that receives this.
func (s *system) answer(raw string) (received, error) {
	var w wire
	if err := json.Unmarshal([]byte(raw), &w); err != nil {
		return received{}, err
	}
	if w.Lost {
		return received{err: errLost}, nil
	}
	return received{response: &http.Response{
		StatusCode: w.Code,
		Status:     fmt.Sprintf("%d %s", w.Code, http.StatusText(w.Code)),
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {"application/json"}},
		Body:          io.NopCloser(strings.NewReader(string(w.Body))),
		ContentLength: int64(len(w.Body)),
	}}, nil
}

// errLost is what a client gets if the connection breaks.
var errLost = errors.New("connection lost")
