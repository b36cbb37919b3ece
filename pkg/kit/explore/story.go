package explore

import (
	"fmt"
	"slices"
	"strings"
)

// Counterexample is a path from the beginning to something that is wrong. No path to anything
// wrong is shorter, unless it is a storm.
type Counterexample struct {
	// Bounds are those of the search.
	Bounds Bounds
	// Steps say what happens, one after the other.
	Steps []Step
	// Wrong says what is wrong in the end.
	Wrong string
	// isRest says that it is wrong to stay in the last state.
	isRest bool
}

// Step is one step of a story.
type Step struct {
	// Did says who does what.
	Did string
	// Shows says what has changed by it, a line each.
	Shows []string
	step  step
}

// path returns the steps from the beginning to a state.
func (g *graph) path(id uint32) (steps []step) {
	for ; id != 0; id = g.came[id].from {
		steps = append(steps, g.came[id].step)
	}
	slices.Reverse(steps)
	return steps
}

// counterexample returns the story of a finding.
func (g *graph) counterexample(f finding) (*Counterexample, error) {
	steps := g.path(f.from)
	if f.isAt {
		steps = append(steps, f.cycle...)
	} else {
		steps = append(steps, f.step)
	}
	c := &Counterexample{Bounds: g.system.bounds, Wrong: f.wrong, isRest: f.isAt && len(f.cycle) == 0}
	for taken, err := range g.walkers[0].follow(steps) {
		if err != nil {
			return nil, err
		}
		c.Steps = append(c.Steps, g.system.tell(taken))
	}
	return c, nil
}

// String returns the story.
func (c *Counterexample) String() string {
	var b strings.Builder
	for i, s := range c.Steps {
		fmt.Fprintf(&b, "%3d. %s\n", i+1, s.Did)
		for _, line := range s.Shows {
			fmt.Fprintf(&b, "       %s\n", line)
		}
	}
	fmt.Fprintf(&b, "Wrong: %s\n", c.Wrong)
	return b.String()
}

// tell says what a step does.
func (s *system) tell(t taken) Step {
	taken, before, after := t.step, t.before, t.after
	told := Step{step: taken}
	i := int(taken.process)
	process := "process"
	if i < len(s.programs) {
		process = s.setup.Programs[s.programs[i]].Name
		if len(s.programs) > 1 {
			process = fmt.Sprintf("%s %d", process, i+1)
		}
	}
	was, is := &before.processes[i], &after.processes[i]
	switch taken.kind {
	case starts:
		told.Did = process + " starts, and fills its caches"
	case leads:
		told.Did = process + " begins to work"
	case seesEvent:
		e := was.caches[taken.arg].unseen[0]
		told.Did = fmt.Sprintf("%s sees %s %s", process, [...]string{"a new", "a changed", "the deletion of"}[e.kind], s.object(e.object))
	case beginsSync:
		r := begun(was, is)
		told.Did = process + " begins a sync" + s.syncOf(" of ", r) + s.andSends(r)
	case isAnswered:
		r := is.syncs[taken.move]
		told.Did = fmt.Sprintf("the API server carries out the request of %s%s: %s", process, s.syncOf(" for ", r), s.short(r.response))
	case isRefused:
		r := is.syncs[taken.move]
		told.Did = fmt.Sprintf("the API server refuses the request of %s%s: %s", process, s.syncOf(" for ", r), s.short(r.response))
	case losesAnswer:
		told.Did = fmt.Sprintf("the connection of %s%s breaks before there is a response", process, s.syncOf(" for ", is.syncs[taken.move]))
	case getsAnswer:
		r := was.syncs[taken.move]
		told.Did = fmt.Sprintf("%s gets the response %s%s", process, s.short(r.response), s.syncOf(" for ", r)) + s.andSends(following(is, r))
	case arrivesLate:
		told.Did = "late, the API server carries out " + s.short(before.late[taken.arg])
	case neverArrives:
		told.Did = s.short(before.late[taken.arg]) + " never arrives"
	case crash:
		told.Did = process + " crashes"
	case isDeposed:
		told.Did = process + " can no longer renew its lease, and may not know that yet"
		if is.phase == down {
			told.Did = process + " ends, because it has lost the lease"
		}
	case ends:
		told.Did = process + " ends, because it has lost the lease"
	case fillsAnew:
		told.Did = fmt.Sprintf("the watch of %s for %s breaks off; it lists them again", process, s.caches[s.programs[i]][taken.arg].Resource().Resource)
	case timePasses:
		told.Did = "time passes"
	case somebodyActs, somebodyEdits:
		told.Did = s.actors[taken.arg].Name + " " + s.did(before, taken)
	}
	told.Shows = s.differences(before, after)
	return told
}

// begun returns the sync that runs in a process, and did not before. It has no request if the
// sync has ended.
func begun(was, is *process) running {
	for _, r := range is.syncs {
		if following(was, r).of == 0 {
			return r
		}
	}
	return running{}
}

// following returns the sync of the same object in a process. It is empty if none runs.
func following(p *process, r running) running {
	for _, other := range p.syncs {
		if other.of == r.of {
			return other
		}
	}
	return running{}
}

// syncOf names the object of a sync, if others may run at the same time.
func (s *system) syncOf(preposition string, r running) string {
	if s.bounds.Workers < 2 || r.of == 0 {
		return ""
	}
	return preposition + s.get(r.of).raw
}

// andSends says what a sync has sent.
func (s *system) andSends(r running) string {
	if r.request.template == 0 {
		return ", which ends"
	}
	return ", and sends " + s.short(r.request)
}

// short says what a request or a response is.
func (s *system) short(x text) string {
	raw := s.render(x)
	w, err := readWire(raw)
	switch {
	case err != nil:
		return raw
	case w.Lost:
		return "that the connection was lost"
	case w.Code != 0:
		if reason := w.reason(); reason != "" {
			return fmt.Sprintf("%d (%s)", w.Code, reason)
		}
		return fmt.Sprint(w.Code)
	}
	r, err := parseRequest(raw)
	if err != nil {
		return raw
	}
	verb, key, subresource, ok := s.server.Parse(r)
	if !ok {
		return r.Method + " " + r.Path
	}
	what := key.Resource.Resource
	if subresource != "" {
		what += "/" + subresource
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", verb, what, key.Name))
}

// object names an object and its version.
func (s *system) object(o object) string {
	key := s.keyOf(o.key)
	stored, err := s.unstructured(o.text)
	if err != nil {
		return key.Name
	}
	return fmt.Sprintf("%s %s", stored.GetKind(), key.Name)
}

// did says what an actor has done.
func (s *system) did(before *state, taken step) string {
	moves, err := s.moves(before, int(taken.arg))
	if err != nil || int(taken.move) >= len(moves) {
		return "does something"
	}
	return moves[taken.move].did
}
