package explore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A step is one thing that happens.
type step struct {
	kind    stepKind
	process int8
	arg     int8 // the number of a cache, a late request, a refusal, an actor
	move    int8 // the number of the actor's move, or of the sync
}

type stepKind byte

const (
	starts        stepKind = iota // a process fills its caches
	leads                         // a process begins to lead
	seesEvent                     // a cache sees the next event of its watch
	beginsSync                    // a worker begins a sync
	isAnswered                    // the server carries out a request, and sends the response
	isRefused                     // the server refuses a request
	losesAnswer                   // the client gets no response
	getsAnswer                    // a response arrives
	arrivesLate                   // the server carries out a request that nobody waits for
	neverArrives                  // such a request is lost
	crash                         // a process ends
	isDeposed                     // a process loses the lease
	ends                          // a process that has lost the lease ends
	fillsAnew                     // the watch of a cache breaks off, and the cache is filled anew
	timePasses                    // until something happens by itself
	somebodyActs                  // one of the world
	somebodyEdits                 // one of the people
)

// successor is what a step leads to.
type successor struct {
	step   step
	next   *state
	isFree bool   // nothing has gone wrong: what can happen, happens at some time
	wrote  bool   // a request of ours has changed what is stored
	wrong  string // what a check has found
	// isAlone says that the step counts as independent of nothing.
	isAlone bool
}

// walker works out the steps of states. It has an instance of each program, and is for one
// goroutine.
type walker struct {
	*system
	instances []*instance
	known     []edge // of the state
	out       []successor
}

func newWalker(ctx context.Context, s *system) (*walker, error) {
	w := &walker{system: s}
	for i := range s.setup.Programs {
		in, err := newInstance(ctx, s, i)
		if err != nil {
			return nil, err
		}
		w.instances = append(w.instances, in)
	}
	return w, nil
}

// steps returns all that can happen in a state, but for the steps of sources that are known.
func (w *walker) steps(st *state, known ...edge) ([]successor, error) {
	w.known, w.out = known, w.out[:0]
	for i := range st.processes {
		if err := w.stepsOf(st, i); err != nil {
			return nil, err
		}
	}
	for i := range st.late {
		if w.knows(arrivesLate, 0, i) {
			continue
		}
		if err := w.late(st, i); err != nil {
			return nil, err
		}
	}
	for i := range w.actors {
		if w.knows(somebodyActs, 0, i) {
			continue
		}
		if err := w.actor(st, i); err != nil {
			return nil, err
		}
	}
	return w.out, w.time(st)
}

// knows reports whether the steps of a source are known.
func (w *walker) knows(kind stepKind, process, arg int) bool {
	return isKnown(w.known, source{kind, int8(process), int8(arg)})
}

// fork returns a copy of the state in which one process may be changed.
func fork(st *state) *state {
	next := *st
	next.processes = slices.Clone(st.processes)
	for i := range next.processes {
		next.processes[i].caches = slices.Clone(st.processes[i].caches)
		next.processes[i].syncs = slices.Clone(st.processes[i].syncs)
	}
	return &next
}

func (w *walker) add(next *state, kind stepKind, process, arg int, more ...func(*successor)) {
	s := successor{step: step{kind: kind, process: int8(process), arg: int8(arg)}, next: next, isFree: true}
	for _, change := range more {
		change(&s)
	}
	w.out = append(w.out, s)
}

// spends makes a step one of which only so many may happen.
func spends(kind int) func(*successor) {
	return func(s *successor) {
		s.isFree = false
		s.next.left[kind]--
	}
}

// ofSync makes a step one of the n-th sync that runs.
func ofSync(n int) func(*successor) { return func(s *successor) { s.step.move = int8(n) } }

func finds(wrong string) func(*successor) { return func(s *successor) { s.wrong = wrong } }

// stepsOf adds the steps of a process.
func (w *walker) stepsOf(st *state, i int) error {
	p := &st.processes[i]
	if p.phase == down {
		if w.knows(starts, i, 0) {
			return nil
		}
		next := fork(st)
		next.processes[i] = process{phase: standby, next: -1}
		for _, cache := range w.caches[w.programs[i]] {
			full, err := w.listed(st, cache)
			if err != nil {
				return err
			}
			next.processes[i].caches = append(next.processes[i].caches, full)
		}
		w.add(next, starts, i, 0)
		return nil
	}
	for j := range p.caches {
		if err := w.cache(st, i, j); err != nil {
			return err
		}
	}
	switch p.phase {
	case standby:
		if !w.knows(leads, i, 0) && w.mayLead(st, i) {
			return w.play(st, i, leads, 0, situation{action: begins, phase: leading})
		}
	case leading:
		if !w.knows(beginsSync, i, 0) && p.due != 0 && len(p.syncs) < max(1, w.bounds.Workers) {
			if err := w.play(st, i, beginsSync, 0, w.syncOf(p)); err != nil {
				return err
			}
		}
		if !w.knows(crash, i, 0) && st.left[crashes] > 0 {
			w.add(w.stopped(st, i), crash, i, 0, spends(crashes))
		}
		if !w.knows(isDeposed, i, 0) && st.left[takeovers] > 0 && w.setup.Programs[w.programs[i]].Elected {
			next := fork(st)
			next.processes[i].depose()
			w.add(next, isDeposed, i, 0, spends(takeovers))
		}
	case deposed:
		if !w.knows(ends, i, 0) {
			w.add(w.stopped(st, i), ends, i, 0)
		}
	default:
	}
	for n, r := range p.syncs {
		if !w.knows(isAnswered, i, n) && r.request.template != 0 {
			if err := w.request(st, i, n); err != nil {
				return err
			}
		}
		if !w.knows(getsAnswer, i, n) && r.response.template != 0 {
			if err := w.play(st, i, getsAnswer, n, situation{action: continues, extra: r.response}); err != nil {
				return err
			}
		}
	}
	return nil
}

// syncOf returns that the process syncs what is due.
func (w *walker) syncOf(p *process) situation {
	sit := situation{action: syncs, key: p.due}
	if slices.ContainsFunc(p.wrote, func(made write) bool { return made.of == p.due }) {
		sit.arg = 1
	}
	return sit
}

// depose ends the term of a process. If no sync is running, the process ends at once: it does
// nothing more that others could notice.
func (p *process) depose() {
	p.phase = deposed
	if len(p.syncs) == 0 {
		*p = process{next: -1}
	}
}

// mayLead reports whether a process on standby may begin to lead: nobody else does.
func (w *walker) mayLead(st *state, i int) bool {
	for j, other := range st.processes {
		if w.programs[j] == w.programs[i] && other.phase == leading {
			return false
		}
	}
	return true
}

// stopped returns the state after a process has ended. What it has sent may still arrive.
func (w *walker) stopped(st *state, i int) *state {
	next := fork(st)
	for _, r := range st.processes[i].syncs {
		if r.request.template != 0 {
			next.late = append(slices.Clip(next.late), r.request)
		}
	}
	next.processes[i] = process{next: -1}
	return next
}

// play lets a process do one thing. arg is the number of a cache, or of the sync that
// continues.
func (w *walker) play(st *state, i int, kind stepKind, arg int, sit situation, more ...func(*successor)) error {
	p := &st.processes[i]
	if sit.phase == 0 {
		sit.phase = p.phase
	}
	for _, c := range p.caches {
		sit.caches = append(sit.caches, cached{class: c.class, version: c.version, objects: c.objects})
	}
	if extra := sit.relisted; extra != nil {
		sit.caches = append(sit.caches, *extra)
	}
	sit.memory = p.memory
	var before []text
	r := running{of: sit.key}
	wrote := p.wrote
	if sit.action == continues {
		r = p.syncs[arg]
		before, wrote = r.met, append(slices.Clip(wrote), p.unseen(r.made)...)
		more, arg = append(more, ofSync(arg)), 0
	}
	out, err := w.run(w.programs[i], before, sit)
	if err != nil {
		return fmt.Errorf("%s: %w", w.setup.Programs[w.programs[i]].Name, err)
	}
	next := fork(st)
	q := &next.processes[i]
	q.phase, q.memory, q.due, q.next, q.wrote = sit.phase, out.memory, out.due, out.next, wrote
	switch sit.action {
	case syncs, continues:
		r = running{of: r.of, request: out.request}
		if out.request.template != 0 {
			// What was not read has made no difference.
			r.met = append(slices.Clip(before), w.compose(sit.reduced(out.read)))
			out.wrong = cmp.Or(out.wrong, w.count(next))
		}
		q.syncs = w.withSync(q.syncs, r)
		if q.phase == deposed {
			q.depose()
		}
	default:
	}
	w.add(next, kind, i, arg, append(more, finds(out.wrong))...)
	return nil
}

// withSync returns the syncs that run after one of them went on, or has begun: without it,
// if it has sent no request.
func (w *walker) withSync(syncs []running, r running) []running {
	at, runs := slices.BinarySearchFunc(syncs, r.of, func(a running, of int32) int {
		return strings.Compare(w.get(a.of).raw, w.get(of).raw)
	})
	if runs {
		syncs = slices.Delete(syncs, at, at+1)
	}
	if r.request.template == 0 {
		return syncs
	}
	return slices.Insert(syncs, at, r)
}

// count counts a request that was sent, and says if there are too many.
func (w *walker) count(st *state) (wrong string) {
	if w.setup.Requests == 0 || w.bounds.budget() != (budget{}) {
		return ""
	}
	st.sent++
	if int(st.sent) <= w.setup.Requests {
		return ""
	}
	return fmt.Sprintf("more than %d requests, though nothing has gone wrong", w.setup.Requests)
}

// run lets a program do what comes after the parts before, or remembers what came of that
// in a situation that looked the same, as far as it was looked at.
func (w *walker) run(program int, before []text, sit situation) (outcome, error) {
	kind := readsOf{program, sit.action, sit.arg}
	if sit.action == passes {
		kind.arg = 0
	}
	for _, read := range w.reads.get(kind) {
		r, key := w.names(append(slices.Clip(before), w.compose(sit.reduced(read)))...)
		key = append(key, byte(program), byte(read))
		if local, ok := w.played.find(key); ok {
			return w.outcomeBack(r, local), nil
		}
	}
	all := append(slices.Clip(before), w.compose(sit))
	r, _ := w.names(all...)
	situations := make([]situation, len(all))
	for i, part := range all {
		situations[i] = w.decompose(w.renamed(r, part))
	}
	out, err := w.instances[program].play(situations)
	if err == nil && out.request.template != 0 && out.wrong == "" {
		out.wrong, err = w.checkSent(situations, out.request)
	}
	if err != nil {
		return out, err
	}
	out = w.outcomeBack(r, out)
	r, key := w.names(append(slices.Clip(before), w.compose(sit.reduced(out.read)))...)
	if !r.knows(w.get(out.memory.template).gaps, out.memory.values) || !r.knows(w.get(out.request.template).gaps, out.request.values) {
		out.read = everything
		r, key = w.names(all...)
	}
	local := out
	local.memory, local.request = w.renamed(r, out.memory), w.renamed(r, out.request)
	w.played.keep(append(key, byte(program), byte(out.read)), local)
	w.reads.add(kind, out.read)
	return out, nil
}

// outcomeBack returns an outcome with the values that its names stand for.
func (w *walker) outcomeBack(r *renaming, out outcome) outcome {
	out.memory, out.request = w.back(r, out.memory, free{}), w.back(r, out.request, free{})
	return out
}

// cache adds the steps of a cache.
func (w *walker) cache(st *state, i, j int) error {
	p := &st.processes[i]
	c := p.caches[j]
	if !w.knows(seesEvent, i, j) && len(c.unseen) > 0 {
		e := c.unseen[0]
		seen := c.after(e)
		seen.unseen = c.unseen[1:]
		if p.phase == standby {
			next := fork(st)
			next.processes[i].caches[j] = seen
			w.add(next, seesEvent, i, j)
		} else if err := w.play(st, i, seesEvent, j, situation{action: sees, arg: int64(j), event: e.kind, key: e.object.key, extra: e.object.text}, func(s *successor) {
			s.next.processes[i].sees(j, seen)
		}); err != nil {
			return err
		}
	}
	if w.knows(fillsAnew, i, j) || st.left[relists] == 0 || p.phase != leading {
		return nil
	}
	fresh, err := w.listed(st, w.caches[w.programs[i]][j])
	if err != nil {
		return err
	}
	return w.play(st, i, fillsAnew, j, situation{action: fills, arg: int64(j), relisted: &fresh}, spends(relists), func(s *successor) {
		s.next.processes[i].sees(j, fresh)
	})
}

// after returns what a cache holds after an event.
func (c cached) after(e event) cached {
	return cached{class: c.class, version: e.version, objects: replaced(c.objects, e)}
}

// replaced returns the objects of a cache after an event.
func replaced(objects []object, e event) []object {
	at, isThere := slices.BinarySearchFunc(objects, e.object.key, func(o object, key int32) int { return int(o.key - key) })
	after := slices.Clone(objects)
	switch {
	case e.kind == deleted && isThere:
		return slices.Delete(after, at, at+1)
	case e.kind == deleted:
		return after
	case isThere:
		after[at] = e.object
		return after
	default:
		return slices.Insert(after, at, e.object)
	}
}

// request adds what may become of the request of a sync.
func (w *walker) request(st *state, i, n int) error {
	request := st.processes[i].syncs[n].request
	answered := func(response text) *state {
		next := fork(st)
		r := &next.processes[i].syncs[n]
		r.request, r.response = text{}, response
		return next
	}
	by := w.setup.Programs[w.programs[i]].Name
	made, err := w.answerTo(st, request, by)
	if err != nil {
		return err
	}
	next := answered(made.response)
	w.apply(next, made)
	r := &next.processes[i].syncs[n]
	r.made = w.madeBy(i, r.of, made)
	w.add(next, isAnswered, i, 0, ofSync(n), finds(made.wrong), func(s *successor) { s.wrote = made.isChange })

	if st.left[losses] > 0 {
		answer, err := w.lost()
		if err != nil {
			return err
		}
		next := answered(answer)
		next.late = append(slices.Clip(next.late), request)
		w.add(next, losesAnswer, i, 0, ofSync(n), spends(losses))
	}
	if st.left[refusals] == 0 {
		return nil
	}
	for reason := range refused {
		answer, err := w.refusal(reason)
		if err != nil {
			return err
		}
		w.add(answered(answer), isRefused, i, reason, ofSync(n), spends(refusals))
	}
	return nil
}

// madeBy returns what caches of a process will show of a change that it made in a sync of an
// object.
func (w *walker) madeBy(i int, of int32, c change) (made []write) {
	for _, e := range c.events {
		for j, kind := range e.kinds[w.programs[i]] {
			if kind != filtered {
				made = append(made, write{of, j, e.version})
			}
		}
	}
	return made
}

// late adds what may become of a request that nobody waits for.
func (w *walker) late(st *state, i int) error {
	made, err := w.answerTo(st, st.late[i], "late")
	if err != nil {
		return err
	}
	rest := slices.Delete(slices.Clone(st.late), i, i+1)
	among := func(s *successor) { s.isAlone = len(rest) > 0 } // their order depends on all names
	next := fork(st)
	next.late = rest
	w.apply(next, made)
	w.add(next, arrivesLate, 0, i, among, finds(made.wrong), func(s *successor) { s.wrote = made.isChange })
	dropped := fork(st)
	dropped.late = rest
	w.add(dropped, neverArrives, 0, i, among)
	return nil
}

// actor adds what an actor may do.
func (w *walker) actor(st *state, i int) error {
	isEdit := i >= len(w.setup.World)
	if isEdit && st.left[edits] == 0 {
		return nil
	}
	moves, err := w.moves(st, i)
	if err != nil {
		return err
	}
	for n, made := range moves {
		next := fork(st)
		for i, p := range next.processes {
			if p.phase != down && slices.Contains(made.ends, w.setup.Programs[w.programs[i]].Name) {
				next = w.stopped(next, i)
			}
		}
		w.apply(next, made)
		kind, more := somebodyActs, []func(*successor){finds(made.wrong), func(s *successor) { s.step.move, s.isAlone = int8(n), len(made.ends) > 0 }}
		if isEdit {
			kind, more = somebodyEdits, append(more, spends(edits))
		}
		w.add(next, kind, 0, i, more...)
	}
	return nil
}

// time adds that time passes until something happens by itself. Usually, that takes much
// longer than everything else: it is a delay if anything else can happen.
func (w *walker) time(st *state) error {
	wait := int64(-1)
	for _, p := range st.processes {
		if p.next >= 0 && (wait < 0 || p.next < wait) {
			wait = p.next
		}
	}
	canWait := !slices.ContainsFunc(w.out, func(s successor) bool { return s.isFree }) &&
		!slices.ContainsFunc(w.known, func(e edge) bool { return e.isFree })
	if wait < 0 || !canWait && st.left[delays] == 0 {
		return nil
	}
	// A sync that is running goes on in the same time: it takes none.
	if slices.ContainsFunc(st.processes, func(p process) bool { return len(p.syncs) > 0 }) {
		return nil
	}
	if tick := int64(w.setup.Tick); tick > 0 {
		wait = (wait + tick - 1) / tick * tick
	}
	next, err := w.later(st, time.Duration(wait))
	if err != nil {
		return err
	}
	if !canWait {
		w.add(next, timePasses, 0, 0, spends(delays))
		return nil
	}
	wrong, err := w.checkWait(st, time.Duration(wait))
	if err != nil {
		return err
	}
	w.add(next, timePasses, 0, 0, finds(wrong))
	return nil
}

// checkWait returns what is wrong with a state in which nothing happens for that long.
func (w *walker) checkWait(st *state, wait time.Duration) (wrong string, err error) {
	canFail := w.bounds.Losses > 0 || w.bounds.Refusals > 0
	if settles := w.setup.Settles; settles == 0 || wait <= settles || canFail {
		return "", nil
	}
	if wrong, err = w.atRest(st); wrong == "" || err != nil {
		return "", err
	}
	return fmt.Sprintf("for more than %s, %s", w.setup.Settles, wrong), nil
}

// later returns the state after some time.
func (w *walker) later(st *state, wait time.Duration) (*state, error) {
	next := fork(st)
	for i := range next.processes {
		p := &next.processes[i]
		if p.phase != leading { // One that was deposed has a sync that is running.
			continue
		}
		sit := situation{action: passes, phase: p.phase, arg: int64(wait), memory: p.memory}
		for _, c := range p.caches {
			sit.caches = append(sit.caches, cached{class: c.class, version: c.version, objects: c.objects})
		}
		out, err := w.run(w.programs[i], nil, sit)
		if err != nil {
			return nil, err
		}
		p.memory, p.due, p.next = out.memory, out.due, out.next
	}
	next.age(w.templates, wait)
	return next, nil
}

// age makes what objects have as the present second an earlier one, and exact times older by
// what has passed.
func (s *state) age(t *templates, passed time.Duration) {
	older := func(x text) text {
		var values []int64
		for i, g := range t.get(x.template).gaps {
			if !isTime(g) {
				continue
			}
			if values == nil {
				values = slices.Clone(x.values)
			}
			if g.kind == secondGap || g.kind == microGap {
				values[i]--
			} else {
				values[i] -= int64(passed)
			}
		}
		if values == nil {
			return x
		}
		return text{x.template, values}
	}
	objects := func(objects []object) []object {
		aged := slices.Clone(objects)
		for i := range aged {
			aged[i].text = older(aged[i].text)
		}
		return aged
	}
	s.objects = objects(s.objects)
	s.late = slices.Clone(s.late)
	for i := range s.late {
		s.late[i] = older(s.late[i])
	}
	for i := range s.processes {
		p := &s.processes[i]
		for j := range p.caches {
			c := &p.caches[j]
			c.objects = objects(c.objects)
			c.unseen = slices.Clone(c.unseen)
			for k := range c.unseen {
				c.unseen[k].object.text = older(c.unseen[k].object.text)
			}
		}
	}
}
