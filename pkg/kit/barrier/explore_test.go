package barrier

import (
	"errors"
	"flag"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// This test looks at every order in which things can happen to the shipped waiter, from the
// first change of a resource until the barrier is open. The rest is modeled:
//
//   - The API server stores changes of some objects of the resource, and of other resources,
//     before and during the term. Each has the next resource version. At any time, it may
//     forget which changes led to a version; then it refuses to watch from an earlier one. It
//     never goes back to an older state, as it would after a restore from a backup.
//   - A list without a resource version has the state at some time between the request and
//     the response. Any request may fail.
//   - A watch sends the changes in order, and lags as far as it can. It sends bookmarks, or
//     none. Their versions are older than the next change that it has to send. It may end or
//     fail at any time.
//   - The cache shows the state at some version that the API server had, and knows that
//     version. client-go changes both under one lock (tools/cache/thread_safe_store.go), but
//     a reader takes the lock twice, and the cache may change in between. The version only
//     grows: by a change, by several at once, by a bookmark, or by a new list, which is never
//     older than the cache. One that was filled by an API server that lags just begins with
//     an older version.
//   - The term may begin at any time, and end at any time.
//
// The bounds are how many objects there are, how many changes of them and of others, and how
// often the API server forgets. Everything else may happen as often as it can. There are
// finitely many states, and the search has no end in time.

var (
	exploreBounds  = flag.String("explore.bounds", "", "Explore within these bounds instead of those of the tests: objects=2,changes=4 for example.")
	exploreTimeout = flag.Duration("explore.timeout", 0, "End each search after this time, even if it is not complete.")
)

const (
	first       = 1 // the version of the API server when there are no objects yet
	maxVersions = 16
	maxObjects  = 3
)

// The kinds of what is bounded.
const (
	changes = iota
	others
	compactions
	kinds
)

var kindNames = [kinds]string{"changes", "others", "compactions"}

// limits are the bounds of a search.
type limits struct {
	objects int
	budget  [kinds]int8
}

func parseLimits(t *testing.T, raw string) limits {
	t.Helper()
	l := limits{objects: 2}
	for part := range strings.SplitSeq(raw, ",") {
		name, value, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(value)
		kind := slices.Index(kindNames[:], name)
		switch {
		case err != nil:
			t.Fatal(err)
		case name == "objects":
			l.objects = n
		case kind >= 0:
			l.budget[kind] = int8(n)
		default:
			t.Fatalf("no bound is called %q", name)
		}
	}
	if l.objects > maxObjects || first+int(l.budget[changes])+int(l.budget[others]) >= maxVersions {
		t.Fatalf("%s is more than the test has room for", raw)
	}
	return l
}

// world is a state of everything.
type world struct {
	history [maxVersions]change // which change led to each version
	version int8                // of the API server
	oldest  int8                // from which a watch may begin
	cache   int8                // the version that the cache shows
	term    int8                // the version of the API server when the term began; 0 before that
	isOver  bool                // the term has ended
	waiter  waiter
	request request
	attempt attempt
	budget  [kinds]int8
}

// attempt is what has happened since the barrier began, or last paused.
type attempt struct {
	requests int8   // that the barrier has sent
	watches  int8   // that the API server has opened
	isBroken bool   // a watch was refused, or has failed
	answer   int8   // the version of the last list
	replayed int8   // the version that the watches have shown, beginning with the cache's
	isListed bool   // all objects were listed
	listed   states // these
}

// change is what led to a version.
type change struct {
	kind kind
	name int8 // of an object
}

type kind int8

const (
	another kind = iota // a change of another resource
	added
	modified
	deleted
)

var eventTypes = [...]watch.EventType{added: watch.Added, modified: watch.Modified, deleted: watch.Deleted}

// states are the versions of all objects; 0 if there is no such object.
type states [maxObjects]int8

// request is what the barrier waits for. It waits for nothing while it looks at the cache.
type request struct {
	do      action
	isSent  bool
	isOpen  bool // the API server has handled it; a watch is open
	version int8 // of the list, or of the last event
}

// move is what happens in one step.
type move struct {
	what what
	name int8 // of an object
	at   int8 // a version
}

type what int8

// What can happen. The first ones happen in the end, if they can.
const (
	isHandled what = iota
	isAnswered
	showsChange
	endsWatch
	cacheFollows
	looks
	pauseEnds
	sendsBookmark // what follows need not happen
	cacheSkips
	creates
	updates
	deletes
	changesAnother
	forgets
	begins
	fails // what follows does not happen when all is well
	failsLater
	endsTerm
)

// objects returns the objects at a version.
func (w *world) objects(at int8) (all states) {
	for v := int8(first + 1); v <= at; v++ {
		switch c := w.history[v]; c.kind {
		case added, modified:
			all[c.name] = v
		case deleted:
			all[c.name] = 0
		case another:
		}
	}
	return all
}

// nextChange returns the version of the first change of the resource after a version, or 0.
func (w *world) nextChange(after int8) int8 {
	for v := after + 1; v <= w.version; v++ {
		if w.history[v].kind != another {
			return v
		}
	}
	return 0
}

// isFinished reports whether the barrier does nothing any more.
func (w *world) isFinished() bool { return w.waiter.do == open || w.waiter.do == end }

// moves returns what can happen next.
func (w *world) moves(l limits) (all []move) {
	if w.isFinished() {
		return nil
	}
	all = w.requestMoves(nil)
	if w.isOver {
		return all
	}
	if w.term == 0 {
		all = append(all, move{what: begins})
	} else {
		all = append(all, move{what: endsTerm})
	}
	switch w.waiter.do {
	case look:
		for v := w.cache; v <= w.version; v++ {
			all = append(all, move{what: looks, at: v})
		}
	case pause:
		all = append(all, move{what: pauseEnds})
	default:
	}
	if next := w.nextChange(w.cache); next != 0 {
		all = append(all, move{what: cacheFollows, at: next})
	}
	for v := w.cache + 1; v <= w.version; v++ {
		all = append(all, move{what: cacheSkips, at: v})
	}
	return w.serverMoves(l, all)
}

// requestMoves appends what can become of a request.
func (w *world) requestMoves(all []move) []move {
	r := w.request
	switch {
	case !r.isSent:
		return all
	case !r.isOpen:
		return append(all, move{what: isHandled}, move{what: fails})
	case r.do != replay:
		return append(all, move{what: isAnswered})
	}
	newest := w.version
	if next := w.nextChange(r.version); next != 0 {
		all = append(all, move{what: showsChange, at: next})
		newest = next - 1
	}
	for v := r.version; v <= newest; v++ {
		all = append(all, move{what: sendsBookmark, at: v})
	}
	return append(all, move{what: endsWatch}, move{what: failsLater})
}

// serverMoves appends how the API server's state can change.
func (w *world) serverMoves(l limits, all []move) []move {
	if w.budget[changes] > 0 {
		used := int8(0) // Objects get their names in order: others would do the same.
		for _, c := range w.history {
			if c.kind != another {
				used = max(used, c.name+1)
			}
		}
		for name, version := range w.objects(w.version) {
			switch name := int8(name); {
			case version != 0:
				all = append(all, move{what: updates, name: name}, move{what: deletes, name: name})
			case int(name) < l.objects && name <= used:
				all = append(all, move{what: creates, name: name})
			}
		}
	}
	if w.budget[others] > 0 {
		all = append(all, move{what: changesAnother})
	}
	if w.budget[compactions] > 0 {
		for v := w.oldest + 1; v <= w.version; v++ {
			all = append(all, move{what: forgets, at: v})
		}
	}
	return all
}

// make changes the state by a move, and returns what is wrong with it then. All states are
// equal in which the barrier does nothing any more.
func (w *world) make(m move) (wrong string) {
	wrong = w.apply(m)
	if w.isFinished() && wrong == "" {
		*w = world{waiter: waiter{do: w.waiter.do}}
	}
	return wrong
}

// apply changes the state by a move, and returns what is wrong with what the barrier then
// does.
func (w *world) apply(m move) (wrong string) {
	switch m.what {
	case creates:
		w.store(changes, change{added, m.name})
	case updates:
		w.store(changes, change{modified, m.name})
	case deletes:
		w.store(changes, change{deleted, m.name})
	case changesAnother:
		w.store(others, change{})
	case forgets:
		w.budget[compactions]--
		w.oldest = m.at
	case cacheFollows, cacheSkips:
		w.cache = m.at
	case begins:
		w.term = w.version
		return w.act()
	case endsTerm:
		w.isOver = true
		if w.waiter.do == pause {
			w.waiter.paused()
		}
		if !w.request.isSent {
			return w.act()
		}
	case looks:
		return w.look(m.at)
	case pauseEnds:
		w.attempt = attempt{}
		w.waiter.paused()
		return w.act()
	case isHandled:
		return w.handle()
	case isAnswered:
		w.respond()
		return w.act()
	case showsChange, sendsBookmark, endsWatch, failsLater, fails:
		w.receive(m)
		if w.waiter.do != replay || !w.request.isSent {
			w.request = request{}
			return w.act()
		}
	}
	return ""
}

// store makes a change.
func (w *world) store(kind int, c change) {
	w.budget[kind]--
	w.version++
	w.history[w.version] = c
}

// act lets the barrier do its next step, and returns what is wrong with that.
func (w *world) act() (wrong string) {
	switch do := w.waiter.next(w.isOver); do {
	case ask, replay, listAll:
		wrong = w.isNeedless(do)
		w.request = request{do: do, isSent: true}
		w.attempt.requests++
	case open:
		return w.opensEarly()
	case look, pause, end:
	}
	return wrong
}

// isNeedless returns what is wrong with a request.
func (w *world) isNeedless(do action) string {
	switch a := w.attempt; {
	case w.isOver:
		return "the barrier sends a request after the term has ended"
	case do == ask && a.requests > 0:
		return "the barrier asks again without a pause"
	case do != ask && a.replayed >= a.answer:
		return "the barrier sends a request although it knows what the cache has to show"
	case do == replay && a.isBroken:
		return "the barrier goes on with a replay that has failed"
	case do == replay && a.watches == maxWatches:
		return "the barrier opens one watch too many"
	case do == listAll && !a.isBroken && a.watches < maxWatches:
		return "the barrier lists all objects although it may watch"
	case do == listAll && a.isListed:
		return "the barrier lists all objects twice"
	}
	return ""
}

// handle lets the API server carry out a request.
func (w *world) handle() (wrong string) {
	r := &w.request
	if r.do != replay {
		r.isOpen, r.version = true, w.version
		return ""
	}
	from := number(w.waiter.at)
	if from < w.oldest {
		w.attempt.isBroken = true
		w.waiter.failed(errors.New("too old resource version"))
		w.request = request{}
		return w.act()
	}
	w.attempt.watches++
	r.isOpen, r.version = true, from
	return ""
}

// respond lets the barrier get a list.
func (w *world) respond() {
	a := &w.attempt
	a.answer = w.request.version
	if w.request.do == ask {
		a.replayed = w.cache
		w.waiter.asked(text(a.answer), text(w.cache))
	} else {
		a.isListed, a.listed = true, w.objects(a.answer)
		w.waiter.listed(w.listOf(a.answer))
	}
	w.request = request{}
}

// receive lets the barrier get an event, or the end of a request.
func (w *world) receive(m move) {
	switch m.what {
	case showsChange:
		w.request.version, w.attempt.replayed = m.at, m.at
		c := w.history[m.at]
		w.waiter.saw(watch.Event{Type: eventTypes[c.kind], Object: object(names[c.name], text(m.at))})
	case sendsBookmark:
		w.request.version, w.attempt.replayed = m.at, m.at
		w.waiter.saw(watch.Event{Type: watch.Bookmark, Object: object("", text(m.at))})
	case failsLater:
		w.attempt.isBroken = true
		w.waiter.saw(watch.Event{Type: watch.Error, Object: &metav1.Status{Reason: metav1.StatusReasonExpired}})
	case endsWatch:
		w.request.isSent = false
		w.waiter.watchEnded()
	case fails:
		w.attempt.isBroken = w.request.do == replay || w.attempt.isBroken
		w.request.isSent = false
		w.waiter.failed(errors.New("no response"))
	default:
	}
}

// look lets the barrier look at the cache, which has reached another version by its second
// look, and returns what is wrong with what it does then.
func (w *world) look(then int8) (wrong string) {
	at := w.cache
	w.waiter.lookAt(&copied{world: w, then: then})
	next := w.nextChange(at)
	if w.waiter.do == look && then == at && (next == 0 || next > w.attempt.answer) {
		return "the barrier stays closed although the cache lacks nothing"
	}
	return w.act()
}

// copied is the cache of a world, which changes after it was first read.
type copied struct {
	cache.Store
	world  *world
	then   int8
	isRead bool
}

func (c *copied) read() (at int8) {
	if c.isRead {
		c.world.cache = c.then
	}
	c.isRead = true
	return c.world.cache
}

func (c *copied) LastStoreSyncResourceVersion() string { return text(c.read()) }

func (c *copied) ListKeys() (keys []string) {
	for name, version := range c.world.objects(c.read()) {
		if version != 0 {
			keys = append(keys, keyOf(name))
		}
	}
	return keys
}

// opensEarly returns what is wrong with opening the barrier now. From now on, the cache must
// not show an object as it was before the term began, nor one that was deleted by then.
//
// There is one exception: if all objects were listed, the cache may yet show an object that
// it does not show now, and that was not in the list either. It has come and gone meanwhile.
func (w *world) opensEarly() string {
	a, shown, stored := w.attempt, w.objects(w.cache), w.objects(w.term)
	for at := w.cache; at < w.term; at++ {
		for name, version := range w.objects(at) {
			isExcepted := a.isListed && a.listed[name] == 0 && shown[name] == 0
			if version == stored[name] || isExcepted {
				continue
			}
			when := "shows"
			if at > w.cache {
				when = "will show"
			}
			return fmt.Sprintf("the barrier is open, but the cache %s %s; when the term began, the API server had %s", when, says(name, version), says(name, stored[name]))
		}
	}
	return ""
}

// listOf returns the response to a list of all objects.
func (w *world) listOf(at int8) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: text(at)}}
	for name, version := range w.objects(at) {
		if version != 0 {
			list.Items = append(list.Items, *object(names[name], text(version)))
		}
	}
	return list
}

var names = [maxObjects]string{"a", "b", "c"}

const namespace = "default"

func keyOf(name int) string { return namespace + "/" + names[name] }

func object(name, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: version}}
}

// text returns a version as the API server writes it.
func text(version int8) string { return strconv.Itoa(int(version)) }

// number returns the version that a text is of, or 0.
func number(text string) int8 {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return int8(n)
}

// appendTo appends the state to b, without the waiter's error, which nothing depends on but
// the log.
func (w *world) appendTo(b []byte) []byte {
	flags := func(all ...bool) {
		var bits byte
		for i, f := range all {
			if f {
				bits |= 1 << i
			}
		}
		b = append(b, bits)
	}
	numbers := func(all ...int8) {
		for _, n := range all {
			b = append(b, byte(n))
		}
	}
	numbers(w.version, w.oldest, w.cache, w.term)
	for _, c := range w.history[:w.version+1] {
		b = append(b, byte(c.kind), byte(c.name))
	}
	numbers(w.budget[:]...)
	a, g := w.attempt, w.waiter.goal
	numbers(a.requests, a.watches, a.answer, a.replayed, w.request.version)
	numbers(a.listed[:]...)
	flags(w.isOver, a.isBroken, a.isListed, w.request.isSent, w.request.isOpen, g.objects != nil,
		g.objects.Has(keyOf(0)), g.objects.Has(keyOf(1)))
	flags(g.objects.Has(keyOf(2)))
	b = append(b, byte(w.request.do), byte(w.waiter.do), byte(w.waiter.watches))
	numbers(number(w.waiter.at), number(g.version), number(g.change))
	return b
}

// search is the states that were found.
type search struct {
	limits
	ids         map[[2]uint64]uint32
	came        []origin // how each state was first reached
	transitions int
	depth       int
	requests    int8 // the most that were sent without a pause
	buffer      []byte
	next        []uint32 // the states that follow others if all is well
	from        []uint32 // where those of each state begin
	isStuck     []bool   // whether nothing has to happen, though the barrier is not open
}

type origin struct {
	from uint32
	move move
}

// found is a state that was found, and not looked at yet.
type found struct {
	id    uint32
	world world
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// enter returns the number of a state, and whether it is new.
func (s *search) enter(w *world, from uint32, by move) (id uint32, isNew bool) {
	s.buffer = w.appendTo(s.buffer[:0])
	hash := [2]uint64{maphash.Bytes(seeds[0], s.buffer), maphash.Bytes(seeds[1], s.buffer)} // two of 10^7 states have the same with less than 10^-24
	if id, ok := s.ids[hash]; ok {
		return id, false
	}
	id = uint32(len(s.came))
	s.ids[hash] = id
	s.came = append(s.came, origin{from, by})
	s.requests = max(s.requests, w.attempt.requests)
	return id, true
}

// start returns the first state: the cache has been filled, and there are no objects yet.
func (s *search) start() world {
	return world{version: first, oldest: first, cache: first, budget: s.budget}
}

// run looks at all states, the nearest first, and returns what is wrong, and how it comes to
// that.
func (s *search) run(until time.Time) (isComplete bool, story string) {
	s.ids = map[[2]uint64]uint32{}
	w := s.start()
	s.enter(&w, 0, move{})
	for level := []*found{{0, w}}; len(level) > 0; s.depth++ {
		var next []*found
		for _, f := range level {
			if f.id%1024 == 0 && !until.IsZero() && time.Now().After(until) {
				return false, ""
			}
			more, wrong := s.lookAt(f)
			if wrong != "" {
				return false, wrong
			}
			next = append(next, more...)
		}
		level = next
	}
	return true, s.neverOpen()
}

// lookAt takes every step from a state, and returns the states that are new.
func (s *search) lookAt(f *found) (next []*found, story string) {
	w := &f.world
	waits := w.term != 0 && !w.isOver && !w.isFinished()
	isStuck := waits
	s.from = append(s.from, uint32(len(s.next)))
	for _, m := range w.moves(s.limits) {
		after := *w
		wrong := after.make(m)
		s.transitions++
		if wrong != "" {
			return nil, s.story(f.id, []move{m}, wrong)
		}
		id, isNew := s.enter(&after, f.id, m)
		if isNew {
			next = append(next, &found{id, after})
		}
		if waits && id != f.id && m.what < fails {
			s.next = append(s.next, id)
			isStuck = isStuck && m.what >= sendsBookmark
		}
	}
	s.isStuck = append(s.isStuck, isStuck)
	return next, ""
}

// neverOpen returns what is wrong if the barrier need not open, although from some time on
// no request fails, and what has to happen does. If there is no circle of states, it is
// enough that in each state something has to happen: then it is open after a while.
func (s *search) neverOpen() (story string) {
	if id := slices.Index(s.isStuck, true); id >= 0 {
		return s.story(uint32(id), nil, "the barrier never opens, although all is well")
	}
	if id, isCircle := s.circle(); isCircle {
		return s.story(id, nil, "the barrier may go on from here without end, although all is well")
	}
	return ""
}

// circle returns a state that follows itself if all is well, if there is one.
func (s *search) circle() (id uint32, isCircle bool) {
	const unknown, onTheWay, done = 0, 1, 2
	is := make([]uint8, len(s.from))
	s.from = append(s.from, uint32(len(s.next)))
	at := slices.Clone(s.from) // the next edge of each state on the way
	var way []uint32
	for id := range is {
		if is[id] == unknown {
			is[id], way = onTheWay, append(way[:0], uint32(id))
		}
		for len(way) > 0 {
			last := way[len(way)-1]
			if at[last] == s.from[last+1] {
				is[last], way = done, way[:len(way)-1]
				continue
			}
			next := s.next[at[last]]
			at[last]++
			switch is[next] {
			case onTheWay:
				return next, true
			case unknown:
				is[next], way = onTheWay, append(way, next)
			}
		}
	}
	return 0, false
}

// story returns the steps to a state and from there, and what is wrong then.
func (s *search) story(id uint32, more []move, wrong string) string {
	steps := slices.Clone(more)
	slices.Reverse(steps)
	for ; id != 0; id = s.came[id].from {
		steps = append(steps, s.came[id].move)
	}
	slices.Reverse(steps)
	var b strings.Builder
	fmt.Fprintf(&b, "counterexample of %d steps\n", len(steps))
	w := s.start()
	known := w.knows()
	for i, m := range steps {
		before := w
		w.apply(m)
		fmt.Fprintf(&b, "%4d. %s\n", i+1, before.tells(m, &w))
		if now := w.knows(); now != known {
			fmt.Fprintf(&b, "        %s\n", now)
			known = now
		}
	}
	fmt.Fprintf(&b, "  Wrong: %s", wrong)
	return b.String()
}

// knows returns what the cache and the barrier know.
func (w *world) knows() string {
	text := fmt.Sprintf("cache: version %d, %s", w.cache, w.objects(w.cache))
	g := w.waiter.goal
	if g.version == "" {
		return text
	}
	text += "; goal: version " + g.version
	if g.change != "" {
		text += " or " + g.change
	}
	if g.objects != nil {
		text += fmt.Sprintf(", and only %q", sets.List(g.objects))
	}
	return text
}

// tells returns what a move does.
func (w *world) tells(m move, after *world) (text string) {
	switch m.what {
	case creates, updates, deletes, changesAnother:
		return fmt.Sprintf("Somebody %s", after.changed(after.version))
	case forgets:
		return fmt.Sprintf("The API server forgets the changes up to version %d", m.at)
	case cacheFollows:
		return fmt.Sprintf("The cache shows: somebody %s", w.changed(m.at))
	case cacheSkips:
		return fmt.Sprintf("The cache is listed again, or gets a bookmark or several changes, up to version %d", m.at)
	case endsTerm:
		return "The term ends"
	case begins:
		text = "The term begins"
	case looks:
		text = fmt.Sprintf("The barrier looks at the cache, at version %d", w.cache)
		if after.cache != w.cache {
			text += fmt.Sprintf(" and then %d", after.cache)
		}
	case pauseEnds:
		text = "A second later"
	case isHandled:
		text = fmt.Sprintf("The API server handles the request, at version %d", w.version)
		if w.request.do == replay && !after.request.isOpen {
			text = "The API server refuses to watch from there"
		}
	case isAnswered:
		text = fmt.Sprintf("The barrier gets the list, of version %d", w.request.version)
	case showsChange:
		text = fmt.Sprintf("The watch shows: somebody %s", w.changed(m.at))
	case sendsBookmark:
		text = fmt.Sprintf("The watch sends a bookmark of version %d", m.at)
	case endsWatch:
		text = "The watch ends"
	case fails:
		text = "The request fails"
	case failsLater:
		text = "The watch sends an error"
	}
	return text + after.acts(w)
}

// acts returns what the barrier does after a move.
func (w *world) acts(before *world) string {
	if w.request.isOpen || w.request == before.request && w.waiter.do == before.waiter.do {
		return ""
	}
	switch w.waiter.do {
	case ask:
		return "; the barrier lists one object"
	case replay:
		return "; the barrier watches from version " + w.waiter.at
	case listAll:
		return "; the barrier lists all objects"
	case look:
		return "; the barrier begins to look at the cache"
	case pause:
		return "; the barrier pauses"
	case open:
		return "; the barrier opens"
	case end:
		return "; the barrier ends"
	}
	return ""
}

// changed returns what led to a version.
func (w *world) changed(at int8) string {
	verb, what := "changes", "another resource"
	if c := w.history[at]; c.kind != another {
		verb = [...]string{added: "creates", modified: "changes", deleted: "deletes"}[c.kind]
		what = names[c.name]
	}
	return fmt.Sprintf("%s %s (version %d)", verb, what, at)
}

// says returns the version of an object.
func says(name int, version int8) string {
	if version == 0 {
		return "no " + names[name]
	}
	return fmt.Sprintf("%s at version %d", names[name], version)
}

func (s states) String() string {
	var all []string
	for name, version := range s {
		if version != 0 {
			all = append(all, says(name, version))
		}
	}
	if len(all) == 0 {
		return "no objects"
	}
	return strings.Join(all, ", ")
}

// TestExplore is complete within these bounds. -explore.bounds goes further.
func TestExplore(t *testing.T) {
	all := []string{
		"changes=4",
		"objects=3,changes=3",
		"changes=2,others=1,compactions=1",
	}
	if *exploreBounds != "" {
		all = []string{*exploreBounds}
	}
	for _, bounds := range all {
		t.Run(bounds, func(t *testing.T) {
			s := search{limits: parseLimits(t, bounds)}
			began := time.Now()
			var until time.Time
			if *exploreTimeout > 0 {
				until = began.Add(*exploreTimeout)
			}
			isComplete, story := s.run(until)
			t.Logf("%s: %d states, %d transitions, depth %d, %s; complete: %t; at most %d requests without a pause", bounds, len(s.came), s.transitions, s.depth, time.Since(began).Round(time.Millisecond), isComplete, s.requests)
			switch {
			case story != "":
				t.Error(story)
			case !isComplete && until.IsZero():
				t.Error("the search is not complete")
			}
		})
	}
}
