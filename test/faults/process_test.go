package faults

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	localcluster "nicoleh.io/k8s-controller/hack/local-cluster/cluster"
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
	r.eventuallyLogs(t, second, "The leader is")

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

// The controller is asked to end while a write is slow. It waits for the answer, and lets go
// of the Lease only then. If there is no answer in time, it leaves the Lease to expire.
func TestAskedToEndDuringSlowWrites(t *testing.T) {
	t.Parallel()
	for how, wantReleased := range map[fault.Effect]bool{fault.Delay: true, fault.HangAfter: false} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			flags := elect
			if wantReleased {
				flags = electForLong
			}
			r := begin(t, flags...)
			r.create(t)
			r.EventuallyReady(t, name)
			slow := r.breaks(fault.Rule{Verbs: fault.Writes, Resources: []string{"deployments"}, Effect: how, After: time.Second})
			r.editAll(t)
			r.applied(t, slow, 1)
			r.Controller.Stop(t)
			r.requireRelease(t, wantReleased)
			r.heals(slow)
			r.Controller.Start(t)
			r.recovers(t, 60)
			r.requireTerms(t, 2)
		})
	}
}

// requireRelease requires that the controller, which has ended, has released its Lease after
// the last write of the Deployment was answered, or else that it has not released it.
func (r *run) requireRelease(t *testing.T, want bool) {
	t.Helper()
	found, err := r.Lab.Kube.CoordinationV1().Leases(r.Name).Get(t.Context(), lease, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if isReleased := ptr.Deref(found.Spec.HolderIdentity, "") == ""; isReleased != want {
		t.Fatalf("whether the Lease is released: %t, want %t", isReleased, want)
	}
	if !want {
		return
	}
	made := r.Requests(t).Writes()
	released, answered := made.Resource("leases"), made.Resource("deployments")
	last := slices.MaxFunc(answered, func(a, b *localcluster.AuditEvent) int { return a.StageTimestamp.Compare(b.StageTimestamp) })
	if at := released[len(released)-1].Received; last.StageTimestamp.After(at) {
		t.Errorf("the Lease was released at %s, and the last write of the Deployment was answered at %s", at, last.StageTimestamp)
	}
}
