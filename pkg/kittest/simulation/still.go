package simulation

import (
	"time"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// Still returns workloads outside of a simulation, in which nothing goes wrong by chance. How long each
// step of a Pod takes depends on how many there were before, and one controller after the other acts, so that caches
// show what one has done before the next one does something.
func Still(kinds ...apiserver.Kind) *Workloads {
	h := &History{
		Simulation: Simulation{Kinds: kinds}, seed: 1, began: time.Now(), server: apiserver.New(apiserver.Options{}, kinds...),
		typed: map[any]any{}, changed: make(chan struct{}, 1), failed: make(chan struct{}),
	}
	w := NewWorkloads(h)
	w.pause = 5 * time.Millisecond
	return &w
}

// ActOn lets the workloads do on a store what is due. It returns the store after each step, and when there
// is more to do; the zero time if there is nothing.
func (w *Workloads) ActOn(store apiserver.Store) (steps []apiserver.Store, next time.Time) {
	w.Store, w.states, w.result.trace = store, nil, nil
	next = w.Act()
	for _, state := range w.states {
		steps = append(steps, state.store)
	}
	return steps, next
}
