package explore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Result is what a search has found.
type Result struct {
	// Bounds are those of the search.
	Bounds Bounds
	// States and Transitions were found, and Depth is the number of steps to the last.
	States, Transitions, Depth int
	// Executed is how many of the transitions were executed. The others follow from those, as
	// independent steps in another order. The number depends on which states are looked at first.
	Executed int
	// IsComplete says that there are no others within the bounds.
	IsComplete bool
	// Took is how long the search took.
	Took time.Duration
	// Counterexample is a shortest path to something that is wrong; nil if nothing is.
	Counterexample *Counterexample
}

// String returns the figures in one line.
func (r Result) String() string {
	how := "complete"
	if !r.IsComplete {
		how = "not complete"
	}
	if r.Counterexample != nil {
		how = "counterexample of " + fmt.Sprint(len(r.Counterexample.Steps)) + " steps"
	}
	return fmt.Sprintf("%s: %d states, %d transitions (%d executed), depth %d, %.0f states/s, %s (%s)",
		r.Bounds, r.States, r.Transitions, r.Executed, r.Depth, float64(r.States)/max(r.Took.Seconds(), 1e-9), r.Took.Round(time.Millisecond), how)
}

// Search looks at all states that can be reached within the bounds, the nearest first. It
// ends with the first thing that is wrong, or when ctx ends. The error is nil unless
// the setup does not work.
func (setup Setup) Search(ctx context.Context, bounds Bounds) (Result, error) {
	defer quiet()()
	result, err := setup.search(ctx, bounds, runtime.GOMAXPROCS(0))
	if err != nil || result.Counterexample == nil || result.States > fewStates {
		return result, err
	}
	// Of several shortest counterexamples, one goroutine finds the same each time.
	return setup.search(ctx, bounds, 1)
}

// fewStates are so few that they can be looked at again.
const fewStates = 100_000

// search looks at the states in that many goroutines.
func (setup Setup) search(ctx context.Context, bounds Bounds, workers int) (Result, error) {
	began := time.Now() //nolint:forbidigo // real time, for the figures
	g, err := newGraph(ctx, setup, bounds, workers)
	if err != nil {
		return Result{}, err
	}
	result, err := g.search(ctx)
	result.Bounds, result.Took = bounds, time.Since(began) //nolint:forbidigo // likewise
	return result, err
}

// quiet keeps errors that syncs return out of the log, and returns a function that ends
// that.
func quiet() func() {
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil                        //nolint:reassign // There is no other way, and the default handlers sleep.
	return func() { utilruntime.ErrorHandlers = handlers } //nolint:reassign // as it was
}

// graph has the states that were found, and how they were reached.
type graph struct {
	system  *system
	walkers []*walker
	seed    maphash.Seed
	seed2   maphash.Seed

	shards [64]shard
	edges  []atomic.Pointer[[]edge] // of each state that was looked at
	// The states of the present level are those from first on, and have these parents.
	first   uint32
	parents [][]parent

	mu                 sync.Mutex
	came               []origin // of each state
	executed, followed int      // transitions
	wrong              finding
}

// shard has a part of the states, by their hashes.
type shard struct {
	mu  sync.Mutex
	ids map[hash]uint32
}

// hash is a hash of a state. That two of 10^7 states have the same is less likely than
// 10^-24.
type hash [2]uint64

// origin is how a state was first reached.
type origin struct {
	from uint32
	step step
}

// finding is something wrong, after a step from a state.
type finding struct {
	from  uint32
	step  step
	isAt  bool   // in the state itself
	cycle []step // back to it
	wrong string
}

func newGraph(ctx context.Context, setup Setup, bounds Bounds, workers int) (*graph, error) {
	system, err := newSystem(ctx, setup, bounds)
	if err != nil {
		return nil, err
	}
	g := &graph{system: system, seed: maphash.MakeSeed(), seed2: maphash.MakeSeed()}
	for i := range g.shards {
		g.shards[i].ids = map[hash]uint32{}
	}
	for range workers {
		w, err := newWalker(ctx, system)
		if err != nil {
			return nil, err
		}
		g.walkers = append(g.walkers, w)
	}
	return g, nil
}

// found is a state that was found, and not looked at yet.
type found struct {
	id  uint32
	raw []byte
}

// shard returns the hash of a state, and where it is kept.
func (g *graph) shard(raw []byte) (hash, *shard) {
	h := hash{maphash.Bytes(g.seed, raw), maphash.Bytes(g.seed2, raw)}
	return h, &g.shards[h[0]%uint64(len(g.shards))]
}

// find returns the number of a state that was found.
func (g *graph) find(raw []byte) (id uint32, ok bool) {
	h, s := g.shard(raw)
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok = s.ids[h]
	return id, ok
}

// enter returns the number of a state, and whether it is new.
func (g *graph) enter(raw []byte, from uint32, by step) (id uint32, isNew bool) {
	h, s := g.shard(raw)
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, ok := s.ids[h]; ok {
		return id, false
	}
	g.mu.Lock()
	id = uint32(len(g.came))
	g.came = append(g.came, origin{from, by})
	g.mu.Unlock()
	s.ids[h] = id
	return id, true
}

func (g *graph) search(ctx context.Context) (Result, error) {
	first, err := g.system.first()
	if err != nil {
		return Result{}, err
	}
	raw := first.encode(g.system.templates, g.system.horizon())
	g.enter(raw, 0, step{})
	level := []found{{0, raw}}
	var result Result
	for len(level) > 0 && g.wrong.wrong == "" && ctx.Err() == nil {
		g.begin(level)
		next, err := g.expand(ctx, level)
		if err != nil {
			return result, err
		}
		if len(next) > 0 {
			result.Depth++
		}
		level = next
	}
	result.IsComplete = len(level) == 0 && ctx.Err() == nil
	if g.wrong.wrong == "" && result.IsComplete {
		g.wrong = g.unsettled()
	}
	result.States, result.Transitions, result.Executed = len(g.came), g.executed+g.followed, g.executed
	if g.wrong.wrong != "" {
		result.IsComplete = false
		result.Counterexample, err = g.counterexample(g.wrong)
	}
	return result, err
}

// expand looks at the states of a level, and returns those of the next.
func (g *graph) expand(ctx context.Context, level []found) (next []found, err error) {
	const batch = 64
	var mu sync.Mutex
	var at int
	var group errgroup.Group
	for _, w := range g.walkers {
		group.Go(func() error {
			for ctx.Err() == nil {
				mu.Lock()
				from, to := at, min(at+batch, len(level))
				at = to
				mu.Unlock()
				if from == to {
					return nil
				}
				more, err := g.lookAt(w, level[from:to])
				if err != nil {
					return err
				}
				mu.Lock()
				next = append(next, more...)
				mu.Unlock()
			}
			return nil
		})
	}
	return next, group.Wait()
}

// lookAt takes every step from the states, and returns the new ones.
func (g *graph) lookAt(w *walker, states []found) (next []found, err error) {
	executed, followed := 0, 0
	for _, s := range states {
		st := decode(g.system.templates, s.raw)
		edges := g.known(s.id)
		followed += len(edges)
		successors, err := w.steps(st, edges...)
		if err != nil {
			return nil, errors.Join(err, g.explain(s.id))
		}
		executed += len(successors)
		for _, to := range successors {
			if to.wrong != "" {
				g.found(finding{from: s.id, step: to.step, wrong: to.wrong})
				continue
			}
			raw := to.next.encode(g.system.templates, g.system.horizon())
			id, isNew := g.enter(raw, s.id, to.step)
			if isNew {
				next = append(next, found{id, raw})
			}
			edges = append(edges, edge{to.step, to.isFree, to.wrote, to.isAlone, id})
		}
		g.edges[s.id].Store(&edges)
		if slices.ContainsFunc(edges, func(e edge) bool { return e.isFree && e.to != s.id }) {
			continue
		}
		wrong, err := g.system.atRest(st)
		if err != nil {
			return nil, err
		}
		if wrong != "" {
			g.found(finding{from: s.id, isAt: true, wrong: wrong})
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.executed += executed
	g.followed += followed
	return next, nil
}

// found records what is wrong, if it is the first.
func (g *graph) found(f finding) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wrong.wrong == "" || f.from < g.wrong.from {
		g.wrong = f
	}
}

// explain returns an error that says how a state was reached.
func (g *graph) explain(id uint32) error {
	c, err := g.counterexample(finding{from: id, isAt: true, wrong: "this does not work"})
	if err != nil {
		return err
	}
	return errors.New(c.String())
}
