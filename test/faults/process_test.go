package faults

import (
	"strings"
	"testing"

	"nicoleh.io/k8s-controller/test/faults/fault"
)

// The leader is cut off for longer than its lease lasts. Another one leads, and the former
// leader ends without having written anything since.
func TestPartitionLongerThanTheLease(t *testing.T) {
	t.Parallel()
	r := begin(t, elect...)
	r.create(t)
	r.EventuallyReady(t, name)
	first := r.Controller
	second := r.StartController(t, elect...)
	r.eventuallyLogs(t, second, "New leader")

	partition := r.breaks(fault.Rule{Effect: fault.HangBefore})
	r.editAll(t)
	r.EventuallyReady(t, name)
	if last := first.Fails(t); !strings.Contains(last, "leadership lost") {
		t.Errorf("the last line of its log is %q", last)
	}
	r.heals(partition)
	first.Start(t)                   // as the kubelet would
	r.goroutines, r.watches = 0, nil // the other one leads, and does not go through faults
	r.recovers(t, 80)
	r.requireTerms(t, 2)
}
