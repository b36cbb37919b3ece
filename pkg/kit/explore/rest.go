package explore

import "slices"

// storm is what is wrong with a cycle of writes.
const storm = "a storm: the last steps can be taken again and again, and write something each time"

// unsettled looks at what happens at some time by itself, once nothing goes wrong any more.
// There must be no cycle in which something is written: that is a storm. And where only a
// part of the states can be reached again and again, these must be as states at rest are.
func (g *graph) unsettled() finding {
	n := len(g.came)
	next, wrote := g.successors(n)
	component := components(n, next)
	for from := range n {
		for i, to := range next(uint32(from)) {
			if component[from] == component[to] && wrote(uint32(from), i) {
				cycle, err := g.cycle(uint32(from), to, next, component)
				wrong := storm
				if err != nil {
					wrong = err.Error()
				}
				return finding{from: uint32(from), isAt: true, cycle: cycle, wrong: wrong}
			}
		}
	}
	return g.restless(n, next, component)
}

// successors returns the free steps of a state, and whether they write.
func (g *graph) successors(n int) (next func(uint32) []uint32, wrote func(uint32, int) bool) {
	begin := make([]uint32, n+1)
	var to []uint32
	var writes []bool
	for id := range n {
		for _, e := range *g.edges[id].Load() {
			if e.isFree {
				to, writes = append(to, e.to), append(writes, e.wrote)
			}
		}
		begin[id+1] = uint32(len(to))
	}
	return func(id uint32) []uint32 { return to[begin[id]:begin[id+1]] },
		func(id uint32, i int) bool { return writes[begin[id]+uint32(i)] }
}

// restless looks at the components that nothing leaves: there, only time passes.
func (g *graph) restless(n int, next func(uint32) []uint32, component []uint32) finding {
	leaves := make([]bool, n)
	for from := range n {
		for _, to := range next(uint32(from)) {
			if component[from] != component[to] {
				leaves[component[from]] = true
			}
		}
	}
	for id := range n {
		if leaves[component[id]] || len(next(uint32(id))) == 0 {
			continue
		}
		wrong, err := g.checkRest(uint32(id))
		if err != nil {
			wrong = err.Error()
		}
		if wrong != "" {
			return finding{from: uint32(id), isAt: true, wrong: wrong}
		}
	}
	return finding{}
}

// checkRest checks a state again that was looked at before.
func (g *graph) checkRest(id uint32) (string, error) {
	st, err := g.state(id)
	if err != nil {
		return "", err
	}
	return g.system.atRest(st)
}

// state returns a state that was found, by going there again.
func (g *graph) state(id uint32) (*state, error) {
	st, err := g.system.first()
	if err != nil {
		return nil, err
	}
	for taken, err := range g.walkers[0].follow(g.path(id)) {
		if err != nil {
			return nil, err
		}
		st = taken.after
	}
	return st, nil
}

// cycle returns the steps from a state to the next one of its component, and from there back.
func (g *graph) cycle(from, to uint32, next func(uint32) []uint32, component []uint32) (steps []step, err error) {
	came := map[uint32]uint32{to: from}
	for queue := []uint32{to}; len(queue) > 0 && to != from; {
		id := queue[0]
		queue = queue[1:]
		for _, child := range next(id) {
			if _, ok := came[child]; !ok && component[child] == component[from] {
				came[child] = id
				queue = append(queue, child)
			}
		}
		if _, ok := came[from]; ok {
			break
		}
	}
	ids := []uint32{from}
	for id := came[from]; id != from; id = came[id] {
		ids = append(ids, id)
	}
	slices.Reverse(ids)
	st, err := g.state(from)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		successors, err := g.walkers[0].steps(st)
		if err != nil {
			return nil, err
		}
		for _, s := range successors {
			raw := s.next.encode(g.system.templates, g.system.horizon())
			if there, ok := g.find(raw); ok && there == id && s.isFree {
				steps, st = append(steps, s.step), g.system.canonical(s.next)
				break
			}
		}
	}
	return steps, nil
}

// components returns the strongly connected component of each state, by Tarjan's algorithm
// without recursion.
func components(n int, next func(uint32) []uint32) []uint32 {
	const unknown = ^uint32(0)
	component, low, order := make([]uint32, n), make([]uint32, n), make([]uint32, n)
	for i := range n {
		component[i], order[i] = unknown, unknown
	}
	type frame struct {
		id uint32
		at int
	}
	var stack []uint32
	var calls []frame
	var met, count uint32
	for root := range n {
		if order[root] != unknown {
			continue
		}
		calls = append(calls, frame{id: uint32(root)})
		for len(calls) > 0 {
			f := &calls[len(calls)-1]
			if f.at == 0 && order[f.id] == unknown {
				order[f.id], low[f.id] = met, met
				met++
				stack = append(stack, f.id)
			}
			if to := next(f.id); f.at < len(to) {
				child := to[f.at]
				f.at++
				if order[child] == unknown {
					calls = append(calls, frame{id: child})
				} else if component[child] == unknown {
					low[f.id] = min(low[f.id], order[child])
				}
				continue
			}
			done := *f
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				parent := calls[len(calls)-1].id
				low[parent] = min(low[parent], low[done.id])
			}
			if low[done.id] != order[done.id] {
				continue
			}
			for {
				top := stack[len(stack)-1]
				stack = stack[:len(stack)-1]
				component[top] = count
				if top == done.id {
					break
				}
			}
			count++
		}
	}
	return component
}
