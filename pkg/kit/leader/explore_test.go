package leader

import (
	"flag"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// These tests look at every order in which things can happen to the shipped candidate, with
// two or three processes. The rest is modeled:
//
//   - The API server carries out one request at a time. It knows one or two Leases.
//   - Time passes in ticks, at any moment. All times are relative to now, and one that is so
//     long ago that it makes no difference is as if it were a little less. So there are
//     finitely many states, and the search has no end in time.
//   - The clocks of the processes differ, by a constant.
//   - Events of a watch arrive in order, at any time; two may be under way, and with a third
//     the watch breaks. A process learns that at any time, or never.
//   - The work of a leader writes whenever its fence is open.
//
// The bounds are how often something may go wrong on a path: a crash; a process that is
// stopped for any time; a loss, which is a request or a response that never arrives; a
// delay, which is a request that its client has given up, and that arrives later; a break of
// a watch; and a deletion of a Lease. Processes are told to end, and start again, as often as
// they can.

var (
	exploreBounds  = flag.String("explore.bounds", "", "Explore within these bounds instead of those of the tests: processes=2,stops=1 for example.")
	exploreTimeout = flag.Duration("explore.timeout", 0, "End each search after this time, even if it is not complete.")
)

const (
	tick       = time.Second
	leaseTicks = 4
	deadline   = 3 * tick
	period     = 1 * tick // between renewals
	longest    = 2 * tick // of the pauses after a failure
	someone    = "x"      // a process that no longer runs
)

var (
	now        = time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	offsets    = [...]time.Duration{0, 2 * tick, -3 * tick} // of the clocks
	pauses     = [...]time.Duration{period, longest, period}
	identities = [...]string{"a", "b", "c"}
)

// The kinds of what may go wrong.
const (
	crashes = iota
	stops
	losses
	delays
	breaks
	deletions
	waits
	ends
	kinds
)

var kindNames = [kinds]string{"crashes", "stops", "losses", "delays", "breaks", "deletions", "waits", "ends"}

// limits are the bounds of a search.
type limits struct {
	processes int
	clocks    int // whether they differ
	leases    int // with two, all processes but the first follow the first Lease
	budget    [kinds]int8
}

func parseLimits(t *testing.T, raw string) limits {
	t.Helper()
	l := limits{processes: 2, leases: 1}
	for part := range strings.SplitSeq(raw, ",") {
		name, value, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(value)
		kind := slices.Index(kindNames[:], name)
		switch {
		case err != nil:
			t.Fatal(err)
		case name == "processes":
			l.processes = n
		case name == "leases":
			l.leases = n
		case name == "clocks":
			l.clocks = n
		case kind >= 0:
			l.budget[kind] = int8(n)
		default:
			t.Fatalf("no bound is called %q", name)
		}
	}
	return l
}

// world is a state of everything.
type world struct {
	leases    [2]record
	processes [3]instance
	late      message // a request that its client has given up
	budget    [kinds]int8
}

// instance is a process.
type instance struct {
	runs      bool
	isStopped bool // by SIGSTOP
	isTold    bool // to end
	isWorking bool
	isExcused bool // somebody has deleted a Lease that it held
	candidate candidate
	request   message
	watches   [2]stream
}

// message is a request, and its response.
type message struct {
	isSent    bool
	do        action
	lease     int
	version   string // that the Lease must have
	content   record
	isHandled bool
	how       outcome
	response  record
}

// stream is a watch.
type stream struct {
	isOpen bool
	count  int // of events under way
	events [2]record
}

// move is what happens in one step.
type move struct {
	what    what
	process int
	lease   int
}

type what int

// What can happen. In this order, but for what is wrong, it happens when all is well.
const (
	arrivesLate what = iota
	continues
	starts
	workReturns
	isHandled
	isAnswered
	noticesEnd
	watches
	seesChange
	acts
	timePasses
	dropsLate // what follows does not happen when all is well
	isToldToEnd
	stopsRunning
	crashesAndLoses
	crashesAndDelays
	losesRequest
	losesResponse
	delaysRequest
	breaksWatch
	deletesLease
)

func (m move) String() string {
	p, lease := "", []string{"first", "second"}[m.lease]
	if m.process < len(identities) {
		p = identities[m.process]
	}
	switch m.what {
	case arrivesLate:
		return "A late request arrives"
	case continues:
		return p + " continues"
	case starts:
		return p + " starts"
	case workReturns:
		return "The work of " + p + " returns"
	case isHandled:
		return "The API server carries out the request of " + p
	case isAnswered:
		return p + " gets the response"
	case noticesEnd:
		return p + " notices that its watch of the " + lease + " Lease has ended"
	case watches:
		return p + " watches the " + lease + " Lease"
	case seesChange:
		return "The watch shows " + p + " a change of the " + lease + " Lease"
	case acts:
		return p + " acts"
	case timePasses:
		return "Time passes"
	case dropsLate:
		return "A late request never arrives"
	case isToldToEnd:
		return p + " is told to end"
	case stopsRunning:
		return p + " is stopped"
	case crashesAndLoses:
		return p + " crashes"
	case crashesAndDelays:
		return p + " crashes, and its request arrives later"
	case losesRequest:
		return "The request of " + p + " is lost"
	case losesResponse:
		return "The response to " + p + " is lost"
	case delaysRequest:
		return p + " gives its request up, and it arrives later"
	case breaksWatch:
		return "The watch of " + p + " for the " + lease + " Lease breaks"
	case deletesLease:
		return "Somebody deletes the " + lease + " Lease"
	}
	return fmt.Sprint("move ", int(m.what))
}

// newInstance returns a process that has just started.
func newInstance(l limits, p int) instance {
	c := newCandidate(identities[p], deadline, period)
	if l.leases == 2 && p > 0 {
		c.follow()
	}
	return instance{runs: true, candidate: c}
}

// moves returns what can happen next.
func (w *world) moves(l limits) (all []move) {
	add := func(what what, p, lease int) { all = append(all, move{what, p, lease}) }
	may := func(kind int) bool { return w.budget[kind] > 0 }
	if w.late.isSent {
		add(arrivesLate, 0, 0)
		add(dropsLate, 0, 0)
	}
	for i := range l.leases {
		if may(deletions) && w.leases[i].exists {
			add(deletesLease, len(identities), i)
		}
	}
	for p := range l.processes {
		in := &w.processes[p]
		if !in.runs {
			add(starts, p, 0)
			continue
		}
		if in.request.isSent && !in.request.isHandled {
			add(isHandled, p, 0)
		}
		if may(crashes) {
			add(crashesAndLoses, p, 0)
			if in.request.isSent && !in.request.isHandled && !w.late.isSent {
				add(crashesAndDelays, p, 0)
			}
		}
		for i := range in.candidate.count {
			if may(breaks) && in.watches[i].isOpen {
				add(breaksWatch, p, i)
			}
		}
		if in.isStopped {
			add(continues, p, 0)
			continue
		}
		if may(stops) {
			add(stopsRunning, p, 0)
		}
		switch {
		case in.request.isHandled:
			add(isAnswered, p, 0)
			if may(losses) {
				add(losesResponse, p, 0)
			}
		case in.request.isSent:
			if may(losses) {
				add(losesRequest, p, 0)
			}
			if may(delays) && !w.late.isSent {
				add(delaysRequest, p, 0)
			}
		}
		for i := range in.candidate.count {
			s, knows := &in.watches[i], in.candidate.leases[i].isWatched
			switch {
			case !s.isOpen && knows:
				add(noticesEnd, p, i)
			case !s.isOpen:
				add(watches, p, i)
			case s.count > 0:
				add(seesChange, p, i)
			}
		}
		if !in.isTold && may(ends) {
			add(isToldToEnd, p, 0)
		}
		if in.isTold && in.isWorking {
			add(workReturns, p, 0)
		}
		c := in.candidate
		if s := c.next(clockOf(p)); s.do != waitUntil {
			add(acts, p, 0)
		}
	}
	if may(waits) || !slices.ContainsFunc(all, move.isImminent) {
		add(timePasses, 0, 0)
	}
	return all
}

// isImminent reports whether it takes no time, unless somebody is slow. A watch may always be.
func (m move) isImminent() bool {
	switch m.what {
	case isHandled, isAnswered, acts:
		return true
	default:
		return false
	}
}

// clockOf returns the time by the clock of a process.
func clockOf(p int) time.Time { return now.Add(offsets[p]) }

// make changes the state by a move, and returns what is wrong with it then.
func (w *world) make(l limits, m move) (wrong string) {
	in := &w.processes[m.process%len(w.processes)]
	c, at, pause := &in.candidate, clockOf(m.process%len(w.processes)), pauses[m.process%len(w.processes)]
	if c.phase == leading {
		pause = period
	}
	switch m.what {
	case arrivesLate:
		w.handle(&w.late)
		w.late = message{}
	case dropsLate:
		w.late = message{}
	case continues:
		in.isStopped = false
	case starts:
		*in = newInstance(l, m.process)
	case workReturns:
		in.isWorking = false
		c.finish(true)
	case isHandled:
		w.handle(&in.request)
	case isAnswered:
		r := in.request
		in.request = message{}
		c.answered(at, r.how, r.response, pause)
	case noticesEnd:
		c.watches(m.lease, false, at, pause)
	case watches:
		in.watches[m.lease] = stream{isOpen: true}
		if r := w.leases[m.lease]; r.exists {
			in.watches[m.lease] = stream{isOpen: true, count: 1, events: [2]record{r}}
		}
		c.watches(m.lease, true, at, pause)
	case seesChange:
		s := &in.watches[m.lease]
		r := s.events[0]
		s.events, s.count = [2]record{s.events[1]}, s.count-1
		c.saw(m.lease, r, at, pause)
	case acts:
		wrong = w.act(l, m.process)
	case timePasses:
		if slices.ContainsFunc(w.moves(l), move.isImminent) {
			w.budget[waits]--
		}
		w.age()
	case isToldToEnd:
		w.budget[ends]--
		in.isTold = true
		c.stop()
	case stopsRunning:
		w.budget[stops]--
		in.isStopped = true
	case crashesAndLoses:
		w.budget[crashes]--
		w.end(m.process)
	case crashesAndDelays:
		w.budget[crashes]--
		w.late = in.request
		w.end(m.process)
	case losesRequest, losesResponse:
		w.budget[losses]--
		in.request = message{}
		c.answered(at, failed, record{}, pause)
	case delaysRequest:
		w.budget[delays]--
		w.late, in.request = in.request, message{}
		c.answered(at, failed, record{}, pause)
	case breaksWatch:
		w.budget[breaks]--
		in.watches[m.lease] = stream{}
	case deletesLease:
		w.budget[deletions]--
		for p := range w.processes {
			other := &w.processes[p]
			if other.runs && (other.candidate.leases[m.lease].record.holder == identities[p] || other.request.response.holder == identities[p] && other.request.lease == m.lease) {
				other.isExcused = true
			}
		}
		w.store(m.lease, record{})
	}
	if in.runs && c.phase == leading {
		in.isWorking = true
	}
	w.normalize(l)
	if wrong == "" {
		wrong = w.twoWriters(l)
	}
	return wrong
}

// act lets a process do its next step.
func (w *world) act(l limits, p int) (wrong string) {
	in := &w.processes[p]
	s := in.candidate.next(clockOf(p))
	r := message{isSent: true, do: s.do, lease: s.lease, version: s.version}
	switch s.do {
	case waitUntil:
	case lose, end:
		w.end(p)
		return ""
	case create, update:
		r.content = record{exists: true, holder: identities[p], duration: leaseTicks * tick, renewed: clockOf(p)}
	case release:
		r.content = record{exists: true, duration: tick, renewed: clockOf(p)}
		if in.isWorking {
			wrong = identities[p] + " releases a Lease while it is working"
		}
	case read:
	}
	if l.clocks == 0 {
		r.content.renewed = time.Time{}
	}
	in.request = r
	return wrong
}

// end ends a process.
func (w *world) end(p int) {
	w.processes[p] = instance{}
	rename := func(r *record) {
		if r.holder == identities[p] {
			r.holder = someone
		}
	}
	for i := range w.leases {
		rename(&w.leases[i])
	}
	rename(&w.late.content)
	for q := range w.processes {
		other := &w.processes[q]
		rename(&other.request.response)
		for i := range other.watches {
			rename(&other.candidate.leases[i].record)
			rename(&other.watches[i].events[0])
			rename(&other.watches[i].events[1])
		}
	}
}

// handle carries out a request.
func (w *world) handle(m *message) {
	r := w.leases[m.lease]
	m.isHandled = true
	switch {
	case m.do == read:
	case m.do == create && r.exists, m.do != create && !r.exists, m.do != create && m.version != "" && m.version != r.version:
		m.how = refused
		return
	default:
		w.store(m.lease, m.content)
	}
	m.response = w.leases[m.lease]
	m.content = record{}
}

// store changes a Lease, and sends that to the watches.
func (w *world) store(lease int, r record) {
	if r.exists {
		r.version = "~" // a new one
	}
	isNew := r.exists && !w.leases[lease].exists
	w.leases[lease] = r
	for p := range w.processes {
		if isNew && w.processes[p].candidate.isOptional(lease) {
			w.processes[p].isExcused = true // a former Lease has appeared again
		}
		switch s := &w.processes[p].watches[lease]; {
		case s.isOpen && s.count == len(s.events):
			*s = stream{}
		case s.isOpen:
			s.events[s.count] = r
			s.count++
		}
	}
}

// twoWriters returns what is wrong if two processes may write.
func (w *world) twoWriters(l limits) string {
	writers := ""
	for p := range l.processes {
		if in := &w.processes[p]; in.runs && !in.isExcused && in.candidate.validFor(clockOf(p)) > 0 {
			writers += identities[p]
		}
	}
	if len(writers) > 1 {
		return writers[:1] + " and " + writers[1:2] + " may write"
	}
	return ""
}

// times calls visit with all times, and the clock that they are of.
func (w *world) times(visit func(t *time.Time, clock time.Time)) {
	records := func(r *record) { visit(&r.renewed, now) }
	for i := range w.leases {
		records(&w.leases[i])
	}
	records(&w.late.content)
	for p := range w.processes {
		in := &w.processes[p]
		if !in.runs {
			continue
		}
		records(&in.request.content)
		records(&in.request.response)
		visit(&in.candidate.request.sent, clockOf(p))
		for i := range in.candidate.count {
			l := &in.candidate.leases[i]
			for _, t := range []*time.Time{&l.seen, &l.sent, &l.noRead, &l.noWrite} {
				visit(t, clockOf(p))
			}
			records(&l.record)
			records(&in.watches[i].events[0])
			records(&in.watches[i].events[1])
		}
	}
}

// age lets a tick pass.
func (w *world) age() {
	w.times(func(t *time.Time, _ time.Time) {
		if !t.IsZero() {
			*t = t.Add(-tick)
		}
	})
}

// normalize makes states equal that differ only in what makes no difference.
func (w *world) normalize(l limits) {
	const long = (leaseTicks + 1) * tick
	w.times(func(t *time.Time, clock time.Time) {
		if !t.IsZero() && clock.Sub(*t) > long+offsets[1] {
			*t = clock.Add(-long - offsets[1])
		}
	})
	for p := range l.processes {
		in := &w.processes[p]
		if !in.runs {
			continue
		}
		in.isExcused = in.isExcused && !w.holdsAll(p)
		if sent := &in.candidate.request.sent; !sent.IsZero() && sent.Before(clockOf(p).Add(-deadline)) {
			*sent = clockOf(p).Add(-deadline)
		}
		for i := range in.candidate.count {
			state := &in.candidate.leases[i]
			for _, t := range []*time.Time{&state.noRead, &state.noWrite} {
				if !t.After(clockOf(p)) {
					*t = time.Time{}
				}
			}
			if !state.sent.After(clockOf(p).Add(-deadline)) {
				state.sent = time.Time{}
			}
			if state.seen.Before(clockOf(p).Add(-long)) {
				state.seen = clockOf(p).Add(-long)
			}
			if l.leases == 1 && (state.record.holder == "" || state.record.holder == in.candidate.identity) {
				state.seen = time.Time{}
			}
		}
	}
	for i := range l.leases {
		w.renumber(l, i)
	}
}

// holdsAll reports whether a process holds all Leases that it has to.
func (w *world) holdsAll(p int) bool {
	c := &w.processes[p].candidate
	for i := range c.count {
		l := w.leases[i]
		isSkipped := c.isOptional(i) && !l.exists && !c.leases[i].record.exists
		if !isSkipped && l.holder != identities[p] {
			return false
		}
	}
	return true
}

// renumber gives the resource versions of a Lease that are still known small numbers, in
// their order.
func (w *world) renumber(l limits, lease int) {
	var found [24]*string
	n := 0
	add := func(version *string) {
		if *version != "" {
			found[n] = version
			n++
		}
	}
	add(&w.leases[lease].version)
	if w.late.lease == lease {
		add(&w.late.version)
	}
	for p := range l.processes {
		in := &w.processes[p]
		add(&in.candidate.leases[lease].record.version)
		if in.candidate.request.lease == lease {
			add(&in.candidate.request.version)
		}
		if in.request.lease == lease {
			add(&in.request.version)
			add(&in.request.response.version)
		}
		add(&in.watches[lease].events[0].version)
		add(&in.watches[lease].events[1].version)
	}
	all := found[:n]
	slices.SortFunc(all, func(a, b *string) int { return strings.Compare(*a, *b) })
	rank, last := 0, ""
	for _, version := range all {
		if *version != last {
			rank++
			last = *version
		}
		*version = versions[rank]
	}
}

// versions are in the order of the alphabet, before "~".
var versions = strings.Split("-ABCDEFGHIJKLMNOPQRSTUVWXYZ", "")

// appendTo appends the state to b.
func (w *world) appendTo(l limits, b []byte) []byte {
	flags := func(all ...bool) {
		var bits byte
		for i, f := range all {
			if f {
				bits |= 1 << i
			}
		}
		b = append(b, bits)
	}
	text := func(s string) {
		if s == "" {
			s = " "
		}
		b = append(b, s[0])
	}
	at := func(t, clock time.Time) {
		if t.IsZero() {
			b = append(b, 255)
			return
		}
		b = append(b, byte(t.Sub(clock)/tick+64))
	}
	says := func(r *record) {
		flags(r.exists)
		text(r.version)
		text(r.holder)
		b = append(b, byte(r.duration/tick))
		at(r.renewed, now)
	}
	request := func(m *message) {
		flags(m.isSent, m.isHandled)
		b = append(b, byte(m.do), byte(m.lease), byte(m.how))
		text(m.version)
		says(&m.content)
		says(&m.response)
	}
	for i := range l.leases {
		says(&w.leases[i])
	}
	request(&w.late)
	for i := range w.budget {
		b = append(b, byte(w.budget[i]))
	}
	for p := range l.processes {
		in := &w.processes[p]
		flags(in.runs, in.isStopped, in.isTold, in.isWorking, in.isExcused)
		if !in.runs {
			continue
		}
		c := &in.candidate
		b = append(b, byte(c.phase), byte(c.request.do), byte(c.request.lease))
		text(c.request.version)
		at(c.request.sent, clockOf(p))
		request(&in.request)
		for i := range c.count {
			state := &c.leases[i]
			says(&state.record)
			flags(state.isStale, state.isWatched, in.watches[i].isOpen)
			for _, t := range []time.Time{state.seen, state.sent, state.noRead, state.noWrite} {
				at(t, clockOf(p))
			}
			b = append(b, byte(in.watches[i].count))
			says(&in.watches[i].events[0])
			says(&in.watches[i].events[1])
		}
	}
	return b
}

// search is the states that were found.
type search struct {
	limits
	ids         map[[2]uint64]uint32
	came        []origin // how each state was first reached
	transitions int
	depth       int
	scratch     world
	buffer      []byte
	well        chain    // what happens if all is well
	deaf        chain    // and if watches show nothing
	leaders     []uint8  // who may write, as bits
	steady      []uint8  // who of them has time to renew, and is not told to end
	excused     []uint8  // whose Lease was deleted
	took        []int16  // the longest of what neverWell asks for
	handed      []uint32 // states in which a leader has just released its Leases, and another process watches
}

// chain is the next of each state.
type chain struct {
	next  []uint32
	ticks []int16 // that pass on the way
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
	s.buffer = w.appendTo(s.limits, s.buffer[:0])
	raw := s.buffer
	hash := [2]uint64{maphash.Bytes(seeds[0], raw), maphash.Bytes(seeds[1], raw)} // two of 10^7 states have the same with less than 10^-24
	if id, ok := s.ids[hash]; ok {
		return id, false
	}
	id = uint32(len(s.came))
	s.ids[hash] = id
	s.came = append(s.came, origin{from, by})
	var leaders, steady, excused uint8
	for p := range s.processes {
		in := &w.processes[p]
		valid := in.candidate.validFor(clockOf(p))
		switch {
		case !in.runs || valid <= 0:
		case in.isExcused:
			excused |= 1 << p
		case valid > period && !in.isTold && w.leases[0].exists: // otherwise, an old process may create the former Lease
			steady |= 1 << p
			leaders |= 1 << p
		default:
			leaders |= 1 << p
		}
	}
	s.leaders, s.steady, s.excused = append(s.leaders, leaders), append(s.steady, steady), append(s.excused, excused)
	return id, true
}

// run looks at all states, the nearest first, and returns what is wrong, and how it comes to
// that.
func (s *search) run(until time.Time) (isComplete bool, story string) {
	s.ids = map[[2]uint64]uint32{}
	var first world
	first.budget = s.budget
	if s.leases == 2 {
		first.leases[0] = record{exists: true, version: versions[1], duration: tick}
	}
	first.normalize(s.limits)
	s.enter(&first, 0, move{})
	for level := []*found{{0, first}}; len(level) > 0; s.depth++ {
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
	return true, s.neverWell()
}

// lookAt takes every step from a state, and returns the states that are new.
func (s *search) lookAt(f *found) (next []*found, story string) {
	well, deaf := move{what: timePasses + 1}, move{what: timePasses + 1}
	var wellTo, deafTo uint32
	for _, m := range f.world.moves(s.limits) {
		after := &s.scratch
		*after = f.world
		wrong := after.make(s.limits, m)
		s.transitions++
		if wrong != "" {
			return nil, s.story(f.id, &m, wrong)
		}
		id, isNew := s.enter(after, f.id, m)
		if isNew {
			next = append(next, &found{id, *after})
		}
		if m.what < well.what {
			well, wellTo = m, id
		}
		if m.what < deaf.what && m.what != watches && m.what != seesChange {
			deaf, deafTo = m, id
		}
		if m.what == isHandled && f.world.processes[m.process].request.do == release && after.isHandedOver(s.limits) {
			s.handed = append(s.handed, id)
		}
	}
	s.well.set(f.id, wellTo, well)
	s.deaf.set(f.id, deafTo, deaf)
	return next, ""
}

func (c *chain) set(id, to uint32, m move) {
	for int(id) >= len(c.next) {
		c.next, c.ticks = append(c.next, 0), append(c.ticks, 0)
	}
	c.next[id] = to
	if m.what == timePasses {
		c.ticks[id] = 1
	}
}

// isHandedOver reports whether all Leases are free, and a process that is not told to end
// watches them.
func (w *world) isHandedOver(l limits) bool {
	for i := range l.leases {
		if w.leases[i].exists && w.leases[i].holder != "" {
			return false
		}
	}
	for p := range l.processes {
		in := &w.processes[p]
		if !in.runs || in.isStopped || in.isTold {
			continue
		}
		watches := true
		for i := range in.candidate.count {
			watches = watches && in.watches[i].isOpen && in.candidate.leases[i].isWatched
		}
		if watches {
			return true
		}
	}
	return false
}

// Some time after all is well again, which may be at any moment, this has happened.
const (
	mostLeaderless = leaseTicks     // until somebody leads
	mostDeaf       = 2 * leaseTicks // if watches show nothing
	mostExcused    = 1              // until a leader whose Lease was deleted has noticed, at the latest by its next renewal
)

// neverWell returns what is wrong with a state after which all is well.
func (s *search) neverWell() (story string) {
	isLed := func(id uint32) bool { return s.leaders[id] != 0 }
	isOver := func(id uint32) bool { return s.excused[id] == 0 }
	extra := int16(0)
	if s.leases == 2 && s.budget[deletions] > 0 {
		extra = mostExcused // a leader that has lost one Lease keeps the other, which has to expire
	}
	for _, ask := range []struct {
		chain *chain
		is    func(uint32) bool
		most  int16
		wrong string
	}{
		{&s.well, isLed, mostLeaderless + extra, "nobody leads within %d ticks, although all is well"},
		{&s.deaf, isLed, mostDeaf + extra, "nobody leads within %d ticks, although all is well but the watches"},
		{&s.well, isOver, mostExcused, "a leader does not notice within %d ticks that its Lease was deleted"},
	} {
		took := ask.chain.until(ask.is)
		for id, ticks := range took {
			if ticks > ask.most {
				return s.story(uint32(id), nil, fmt.Sprintf(ask.wrong, ask.most))
			}
		}
		s.took = append(s.took, slices.Max(took))
	}
	took := s.well.until(isLed)
	for _, id := range s.handed {
		if took[id] > 0 {
			return s.story(id, nil, fmt.Sprintf("a Lease that was released is taken only after %d ticks", took[id]))
		}
	}
	for p := range s.processes {
		for _, c := range []*chain{&s.well, &s.deaf} {
			lost := c.until(func(id uint32) bool { return s.leaders[id]&(1<<p) == 0 })
			for id, ticks := range lost {
				if s.steady[id]&(1<<p) != 0 && ticks != never {
					return s.story(uint32(id), nil, fmt.Sprintf("%s loses after %d ticks, although all is well", identities[p], ticks))
				}
			}
		}
	}
	return ""
}

const never = 1 << 14

// until returns after how many ticks each state is followed by one that is so.
func (c *chain) until(is func(uint32) bool) []int16 {
	const unknown, onTheWay = -1, -2
	took := make([]int16, len(c.next))
	for id := range took {
		took[id] = unknown
	}
	var way []uint32
	for id := range took {
		way = way[:0]
		at := uint32(id)
		for took[at] == unknown && !is(at) {
			took[at] = onTheWay
			way = append(way, at)
			at = c.next[at]
		}
		switch took[at] {
		case onTheWay: // a circle
			took[at] = never
		case unknown:
			took[at] = 0
		}
		last := took[at]
		for _, on := range slices.Backward(way) {
			if last != never {
				last += c.ticks[on]
			}
			took[on] = last
		}
	}
	return took
}

// story returns the steps to a state and one step from there, and what is wrong then.
func (s *search) story(id uint32, last *move, wrong string) string {
	var steps []string
	if last != nil {
		steps = append(steps, last.String())
	}
	for ; id != 0; id = s.came[id].from {
		steps = append(steps, s.came[id].move.String())
	}
	slices.Reverse(steps)
	return fmt.Sprintf("counterexample of %d steps\n  %s\n  Wrong: %s", len(steps), strings.Join(steps, "\n  "), wrong)
}

// TestExplore is complete within these bounds. -explore.bounds goes further.
func TestExplore(t *testing.T) {
	all := []string{
		"processes=2,waits=2",
		"processes=2,ends=1",
		"processes=2,clocks=1,stops=1",
		"processes=2,losses=1,breaks=1",
		"processes=2,crashes=1",
		"processes=2,delays=1",
		"processes=2,deletions=1",
		"processes=2,leases=2",
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
			t.Logf("%s: %d states, %d transitions, depth %d, %s; complete: %t; at most %d ticks", bounds, len(s.came), s.transitions, s.depth, time.Since(began).Round(time.Millisecond), isComplete, s.took)
			switch {
			case story != "":
				t.Error(story)
			case !isComplete && until.IsZero():
				t.Error("the search is not complete")
			}
		})
	}
}
