package explore

import (
	"iter"
	"slices"
	"sync/atomic"
)

// Independent steps have to do with different parts of a state, so they lead to the same state in
// either order. Once it is known what b leads to after a, a need not be executed after b. This
// saves work, and makes no difference to which states and transitions there are.

// parts is a set of parts of a state.
type parts uint64

const (
	storePart  parts = 1 << iota // what is stored, and which numbers are given out next
	latePart                     // the requests whose sender no longer waits
	budgetPart                   // the first of those that are left: see left
)

// left is how often something may still go wrong.
func left(kind int) parts { return budgetPart << kind }

// The parts of each process.
const (
	phasePart  parts = budgetPart << kinds << iota
	memoryPart       // what it remembers, what its caches hold, and what they see next
	syncsPart        // the syncs that run
	watchPart        // which events its watches have to deliver, or have delivered at once
)

// of returns parts of a process. The 14th process shares those of the first, and so on.
func (p parts) of(process int) parts {
	const each = 4
	return p << (process % ((64 - 2 - kinds) / each) * each)
}

// footprint is what a step has to do with. Two steps may add to the same part in either order.
type footprint struct{ reads, writes, adds parts }

func (f footprint) isIndependentOf(other footprint) bool {
	return f.writes&(other.reads|other.writes|other.adds) == 0 &&
		other.writes&(f.reads|f.adds) == 0 &&
		f.reads&other.adds == 0 && f.adds&other.reads == 0
}

// footprint returns what a step has to do with, unless it is one that is alone. A cache may
// see an event of its watch before or after another event is added to those that the watch
// has not delivered.
func (s *system) footprint(of step) footprint {
	i := int(of.process)
	phase, memory, syncs, watch := phasePart.of(i), memoryPart.of(i), syncsPart.of(i), watchPart.of(i)
	var rivals, watches parts
	for j, program := range s.programs {
		if program == s.programs[i] {
			rivals |= phasePart.of(j)
		}
		watches |= watchPart.of(j)
	}
	switch of.kind {
	case starts: // A list has a new version.
		return footprint{writes: storePart | phase | memory | syncs}
	case leads:
		return footprint{reads: rivals | watch, writes: phase | memory}
	case seesEvent:
		return footprint{reads: phase, writes: memory, adds: watch}
	case beginsSync:
		return footprint{reads: phase, writes: memory | syncs}
	case getsAnswer: // A process that was deposed may end.
		return footprint{writes: phase | memory | syncs}
	case isAnswered:
		return footprint{writes: storePart | syncs, adds: watches}
	case isRefused:
		return footprint{writes: syncs | left(refusals)}
	case losesAnswer:
		return footprint{writes: syncs | latePart | left(losses)}
	case arrivesLate:
		return footprint{writes: storePart | latePart, adds: watches}
	case neverArrives:
		return footprint{writes: latePart}
	case crash:
		return footprint{writes: phase | memory | syncs | latePart | left(crashes)}
	case ends:
		return footprint{writes: phase | memory | syncs | latePart}
	case isDeposed:
		return footprint{writes: phase | memory | syncs | left(takeovers)}
	case fillsAnew:
		return footprint{reads: phase, writes: storePart | memory | left(relists)}
	case somebodyActs:
		return footprint{writes: storePart, adds: watches}
	case somebodyEdits:
		return footprint{writes: storePart | left(edits), adds: watches}
	default: // Time passes for everybody.
		return footprint{writes: ^parts(0)}
	}
}

// source is what has one step or several to choose from, such as a request that is answered or
// lost.
type source struct {
	kind    stepKind
	process int8
	arg     int8
}

func sourceOf(s step) source {
	switch s.kind {
	case isAnswered, isRefused, losesAnswer:
		return source{isAnswered, s.process, s.move}
	case getsAnswer:
		return source{getsAnswer, s.process, s.move}
	case arrivesLate, neverArrives:
		return source{arrivesLate, 0, s.arg}
	case somebodyActs, somebodyEdits:
		return source{somebodyActs, 0, s.arg}
	default:
		return source{s.kind, s.process, s.arg}
	}
}

// edge is a step between two states.
type edge struct {
	step                   step
	isFree, wrote, isAlone bool // as of the successor
	to                     uint32
}

// parent is where a state was reached from.
type parent struct {
	id uint32
	by edge
}

// bySource returns the edges of a state, those of each source together.
func bySource(edges []edge) iter.Seq[[]edge] {
	return func(yield func([]edge) bool) {
		for len(edges) > 0 {
			n := slices.IndexFunc(edges, func(e edge) bool { return sourceOf(e.step) != sourceOf(edges[0].step) })
			if n < 0 {
				n = len(edges)
			}
			if !yield(edges[:n]) {
				return
			}
			edges = edges[n:]
		}
	}
}

// known returns the edges of a state that follow from those of other states.
func (g *graph) known(id uint32) (known []edge) {
	for _, before := range g.parents[id-g.first] {
		if before.by.isAlone {
			continue
		}
		for steps := range bySource(*g.edges[before.id].Load()) {
			if !isKnown(known, sourceOf(steps[0].step)) {
				known = append(known, g.after(before.by.step, steps)...)
			}
		}
	}
	return known
}

// after returns what the steps of a source lead to after another step from the same state. It
// returns nil if that is not known: if one of them depends on it, or has not been looked at.
func (g *graph) after(by step, steps []edge) (after []edge) {
	footprint := g.system.footprint(by)
	for _, e := range steps {
		if e.isAlone || !g.system.footprint(e.step).isIndependentOf(footprint) {
			return nil
		}
		edges := g.edges[e.to].Load()
		if edges == nil {
			return nil
		}
		i := slices.IndexFunc(*edges, func(next edge) bool { return next.step == by })
		if i < 0 {
			return nil
		}
		e.to = (*edges)[i].to
		after = append(after, e)
	}
	return after
}

func isKnown(known []edge, of source) bool {
	return slices.ContainsFunc(known, func(e edge) bool { return sourceOf(e.step) == of })
}

// begin prepares a level: it looks up where its states were reached from.
func (g *graph) begin(level []found) {
	first := uint32(len(g.came) - len(level))
	g.parents = make([][]parent, len(level))
	for id := g.first; id < first; id++ {
		for _, e := range *g.edges[id].Load() {
			if e.to >= first {
				g.parents[e.to-first] = append(g.parents[e.to-first], parent{id, e})
			}
		}
	}
	g.edges = append(g.edges, make([]atomic.Pointer[[]edge], len(level))...)
	g.first = first
}
