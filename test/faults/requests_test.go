package faults

import (
	"testing"
	"time"

	"nicoleh.io/k8s-controller/test/faults/fault"
)

// A third of all responses end in the middle, all watches end every two seconds, and a write
// never gets a response although its connection lives.
func TestConnectionsAreUnreliable(t *testing.T) {
	t.Parallel()
	r := begin(t)
	truncated := r.breaks(fault.Rule{Effect: fault.Truncate, Bytes: 100, Every: 3})
	cut := r.breaks(fault.Rule{Effect: fault.Cut, After: 2 * time.Second})
	lost := r.breaks(fault.Rule{Verbs: fault.Writes, Resources: []string{"deployments"}, Count: 1, Effect: fault.HangAfter})
	r.create(t)
	r.applied(t, lost, 1)
	for i := range edits {
		r.edit(t, i+1)
		r.applied(t, cut, cut.Applied()+1)
	}
	r.heals(truncated, cut, lost)
	r.recovers(t, 80)
}
