package worker

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/snapshot"
)

// Steps runs a loop one sync at a time, for tests: it starts no goroutines and sets no
// timers, and its whole state can be read and restored. Its methods are safe for concurrent
// use.
type Steps struct {
	loop     *Loop
	ctx      context.Context //nolint:containedctx // that of every sync, as in Run
	queue    *stepQueue
	failures *failures
}

// Steps starts the loop in place of [Loop.Run]. It waits for nothing: what [Loop.WaitFor]
// was given is up to the caller. The back-off of the objects is the default one, even
// if [WithRateLimiter] was used. ctx is the parent of each sync's context. An error means
// that the loop was started before.
func (l *Loop) Steps(ctx context.Context) (*Steps, error) {
	logger := klog.LoggerWithName(klog.FromContext(ctx), l.name)
	s := &Steps{
		loop:     l,
		ctx:      klog.NewContext(ctx, logger),
		queue:    newStepQueue(l.clock),
		failures: &failures{of: map[cache.ObjectName]int{}},
	}
	if err := l.start(func() queue { return s.queue }); err != nil {
		return nil, err
	}
	l.backoff = s.failures
	return s, nil
}

// Feed adds the keys of [WithKeys], which Run does when it begins.
func (s *Steps) Feed() {
	for name := range s.loop.keys {
		s.queue.Add(name)
	}
}

// Due returns the object that a worker would take next. ok is false if there is none.
func (s *Steps) Due() (name cache.ObjectName, ok bool) {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	s.queue.promote()
	if len(s.queue.ready) == 0 {
		return name, false
	}
	return s.queue.ready[0], true
}

// Next returns when the next delayed addition is due. ok is false if there is none.
func (s *Steps) Next() (at time.Time, ok bool) {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	s.queue.promote()
	if len(s.queue.delayed) == 0 {
		return at, false
	}
	return s.queue.delayed[s.queue.order()[0]], true
}

// Sync does what a worker does with the object that is due: it syncs it, unless the object
// is held, and requeues it if necessary. It does nothing if no object is due. While a sync is
// running, other steps may be taken, other objects synced, and the state replaced.
func (s *Steps) Sync() {
	name, ok := s.queue.get()
	if !ok {
		return
	}
	s.loop.next(s.ctx, name)
	s.queue.done(name)
}

// StepsState is all that a loop remembers. The keys are names in the format
// namespace/name. Whatever no longer has an effect at the time of the loop's clock is left
// out.
type StepsState struct {
	Ready      []string             `json:"ready,omitempty"`      // to be synced, in this order
	Processing []string             `json:"processing,omitempty"` // taken from the queue
	Again      []string             `json:"again,omitempty"`      // added since they were taken
	Delayed    map[string]time.Time `json:"delayed,omitempty"`    // to be added at that time
	Failures   map[string]int       `json:"failures,omitempty"`   // in a row, up to the longest back-off
	Held       map[string]StepsHold `json:"held,omitempty"`
	Running    map[string]StepsRun  `json:"running,omitempty"`
}

// StepsHold keeps an object from being synced until a time. After AddUrgent, only
// ByServer counts; it is zero if the server asked for nothing.
type StepsHold struct {
	Until    time.Time `json:"until"`
	ByServer time.Time `json:"byServer,omitzero"`
}

// StepsRun is a running sync: when it began, and whether AddUrgent was called since.
type StepsRun struct {
	Since  time.Time `json:"since"`
	Urgent bool      `json:"urgent,omitempty"`
}

// State returns what the loop remembers. Equal states have equal JSON.
func (s *Steps) State() StepsState {
	l, now := s.loop, s.loop.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	s.queue.promote()
	state := StepsState{
		Ready:      texts(s.queue.ready),
		Processing: snapshot.SaveSet(s.queue.processing),
		Again:      snapshot.SaveSet(s.queue.again),
		Delayed:    snapshot.Save(s.queue.delayed, snapshot.Time),
		Failures:   s.failures.state(),
		Held:       map[string]StepsHold{},
		Running: snapshot.Save(l.running, func(r run) StepsRun {
			return StepsRun{Since: snapshot.Time(r.since), Urgent: r.isUrgent}
		}),
	}
	for name, h := range l.held {
		if !h.until.After(now) {
			continue
		}
		held := StepsHold{Until: snapshot.Time(h.until)}
		if h.byServer.After(now) {
			held.ByServer = snapshot.Time(h.byServer)
		}
		state.Held[name.String()] = held
	}
	return state
}

// SetState replaces all that the loop remembers.
func (s *Steps) SetState(state StepsState) {
	l := s.loop
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = snapshot.Restore(state.Held, func(h StepsHold) hold { return hold{until: h.Until, byServer: h.ByServer} })
	l.running = snapshot.Restore(state.Running, func(r StepsRun) run { return run{since: r.Since, isUrgent: r.Urgent} })
	s.failures.setState(state.Failures)

	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	s.queue.ready = names(state.Ready)
	s.queue.processing = snapshot.RestoreSet(state.Processing)
	s.queue.again = snapshot.RestoreSet(state.Again)
	s.queue.delayed = snapshot.Restore(state.Delayed, snapshot.Same)
}

// failures is the default back-off, except that its state can be read and restored. It
// stops counting once the delay has reached its maximum.
type failures struct {
	mu sync.Mutex
	of map[cache.ObjectName]int
}

// When implements workqueue.TypedRateLimiter.
func (f *failures) When(name cache.ObjectName) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	delay := firstRetry << f.of[name]
	if delay >= maxBackoff {
		return maxBackoff
	}
	f.of[name]++
	return delay
}

// Forget implements workqueue.TypedRateLimiter.
func (f *failures) Forget(name cache.ObjectName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, name)
}

// NumRequeues implements workqueue.TypedRateLimiter.
func (f *failures) NumRequeues(name cache.ObjectName) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.of[name]
}

func (f *failures) state() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return snapshot.Save(f.of, snapshot.Same)
}

func (f *failures) setState(state map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of = snapshot.Restore(state, snapshot.Same)
}

// stepQueue is a queue like client-go's delaying queue, except that delayed additions
// become ready when the queue is used, and that its order is deterministic: by time and
// then by name.
type stepQueue struct {
	clock clock.PassiveClock

	mu         sync.Mutex
	ready      []cache.ObjectName
	processing map[cache.ObjectName]bool
	again      map[cache.ObjectName]bool // those of processing that were added since
	delayed    map[cache.ObjectName]time.Time
}

func newStepQueue(clock clock.PassiveClock) *stepQueue {
	return &stepQueue{
		clock:      clock,
		processing: map[cache.ObjectName]bool{},
		again:      map[cache.ObjectName]bool{},
		delayed:    map[cache.ObjectName]time.Time{},
	}
}

// Add adds an object, unless it is ready already.
func (q *stepQueue) Add(name cache.ObjectName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.promote()
	q.add(name)
}

// AddAfter adds an object after a delay. Of several delays, the one that ends first counts.
func (q *stepQueue) AddAfter(name cache.ObjectName, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.promote()
	at := q.clock.Now().Add(after)
	if pending, ok := q.delayed[name]; !ok || at.Before(pending) {
		q.delayed[name] = at
	}
}

// Len returns how many objects are ready.
func (q *stepQueue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.promote()
	return len(q.ready)
}

// get takes the next object. ok is false if none is ready.
func (q *stepQueue) get() (name cache.ObjectName, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.promote()
	if len(q.ready) == 0 {
		return name, false
	}
	name, q.ready = q.ready[0], q.ready[1:]
	q.processing[name] = true
	return name, true
}

// done ends the processing of an object that get returned.
func (q *stepQueue) done(name cache.ObjectName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.promote()
	delete(q.processing, name)
	if q.again[name] {
		delete(q.again, name)
		q.add(name)
	}
}

func (q *stepQueue) add(name cache.ObjectName) {
	switch {
	case q.processing[name]:
		q.again[name] = true
	case !slices.Contains(q.ready, name):
		q.ready = append(q.ready, name)
	}
}

// promote adds the objects whose delay has ended.
func (q *stepQueue) promote() {
	now := q.clock.Now()
	for _, name := range q.order() {
		if q.delayed[name].After(now) {
			return
		}
		delete(q.delayed, name)
		q.add(name)
	}
}

// order returns the delayed objects in the order in which they become ready.
func (q *stepQueue) order() []cache.ObjectName {
	return slices.SortedFunc(maps.Keys(q.delayed), func(a, b cache.ObjectName) int {
		return cmp.Or(q.delayed[a].Compare(q.delayed[b]), cmp.Compare(a.String(), b.String()))
	})
}

func texts(names []cache.ObjectName) (texts []string) {
	for _, name := range names {
		texts = append(texts, name.String())
	}
	return texts
}

func names(texts []string) (names []cache.ObjectName) {
	for _, text := range texts {
		names = append(names, snapshot.Name(text))
	}
	return names
}
