package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// StepNames are the kinds of steps.
var StepNames = stepNames[:]

// Parts are what the footprints of steps consist of, by their names.
func Parts() map[string]uint64 {
	all := map[string]parts{"store": storePart, "late": latePart}
	for i := range kinds {
		all["budgets"] |= left(i)
	}
	for i := range 13 {
		all["phase"] |= phasePart.of(i)
		all["memory"] |= memoryPart.of(i)
		all["syncs"] |= syncsPart.of(i)
		all["watch"] |= watchPart.of(i)
	}
	named := map[string]uint64{}
	for name, part := range all {
		named[name] = uint64(part)
	}
	return named
}

// Orders are the results of all steps in all orders.
type Orders struct {
	graph *graph
	edges [][]edge // of each state
}

// Orders searches, and then takes every step from all states that were found.
func (setup Setup) Orders(ctx context.Context, bounds Bounds) (o *Orders, result Result, err error) {
	defer quiet()()
	o = &Orders{}
	if o.graph, err = newGraph(ctx, setup, bounds, 2); err != nil {
		return nil, result, err
	}
	if result, err = o.graph.search(ctx); err != nil {
		return nil, result, err
	}
	first, err := o.graph.system.first()
	if err != nil {
		return nil, result, err
	}
	sys, w := o.graph.system, o.graph.walkers[0]
	o.edges = make([][]edge, result.States)
	met := make([]bool, result.States)
	met[0] = true
	for queue := [][]byte{first.encode(sys.templates, sys.horizon())}; len(queue) > 0; queue = queue[1:] {
		id, _ := o.graph.find(queue[0])
		successors, err := w.steps(decode(sys.templates, queue[0]))
		if err != nil {
			return nil, result, err
		}
		for _, s := range successors {
			raw := s.next.encode(sys.templates, sys.horizon())
			to, ok := o.graph.find(raw)
			if !ok {
				return nil, result, errors.New("the search has not found all states")
			}
			if !met[to] {
				met[to] = true
				queue = append(queue, raw)
			}
			o.edges[id] = append(o.edges[id], edge{s.step, s.isFree, s.wrote, s.isAlone, to})
		}
	}
	return o, result, nil
}

// CompareSearch returns an error unless the search has found the same.
func (o *Orders) CompareSearch() error {
	byStep := func(a, b edge) int { return cmp.Compare(a.step.String(), b.step.String()) }
	for id, want := range o.edges {
		if got := *o.graph.edges[id].Load(); !slices.Equal(slices.SortedFunc(slices.Values(got), byStep), slices.SortedFunc(slices.Values(want), byStep)) {
			return fmt.Errorf("state %d: got %v, want %v", id, got, want)
		}
	}
	return nil
}

// CompareOrders compares both orders of any two steps that are independent. It returns how many
// there are, and an error if the order makes a difference. It forgets these parts of the
// footprints of a kind of steps, or of all kinds if it is "".
func (o *Orders) CompareOrders(kind string, forgotten uint64) (pairs int, err error) {
	footprint := func(of step) footprint {
		f := o.graph.system.footprint(of)
		if kind == "" || kind == stepNames[of.kind] {
			f.reads, f.writes, f.adds = f.reads&^parts(forgotten), f.writes&^parts(forgotten), f.adds&^parts(forgotten)
		}
		return f
	}
	for _, edges := range o.edges {
		for _, b := range edges {
			for steps := range bySource(edges) {
				isDependent := func(a edge) bool {
					return a.isAlone || b.isAlone || !footprint(a.step).isIndependentOf(footprint(b.step))
				}
				if sourceOf(steps[0].step) == sourceOf(b.step) || slices.ContainsFunc(steps, isDependent) {
					continue
				}
				pairs += len(steps)
				if err := o.compareOrders(b, steps); err != nil {
					return pairs, err
				}
			}
		}
	}
	return pairs, nil
}

// compareOrders returns an error unless the steps of one source can be taken after b as before, and
// lead to the states that b leads to after them.
func (o *Orders) compareOrders(b edge, steps []edge) error {
	afterB := slices.DeleteFunc(slices.Clone(o.edges[b.to]), func(e edge) bool { return sourceOf(e.step) != sourceOf(steps[0].step) })
	want := slices.Clone(steps)
	for i, a := range steps {
		afterA := o.edges[a.to]
		last := slices.IndexFunc(afterA, func(e edge) bool { return e.step == b.step })
		if last < 0 {
			return fmt.Errorf("%s is not possible after %s", b.step, a.step)
		}
		want[i].to = afterA[last].to
	}
	if !slices.Equal(afterB, want) {
		return fmt.Errorf("after %s, got %v, want %v", b.step, afterB, want)
	}
	return nil
}
