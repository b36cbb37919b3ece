package leader

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kittest"
)

// runClientGo starts a candidate of client-go's election, and returns a function that ends it.
func runClientGo(t *testing.T, client *fake.Clientset, identity string, releases bool) (stop context.CancelFunc) {
	t.Helper()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: usual.ResourceNamespace, Name: usual.ResourceName},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration:   usual.LeaseDuration.Duration,
		RenewDeadline:   usual.RenewDeadline.Duration,
		RetryPeriod:     usual.RetryPeriod.Duration,
		ReleaseOnCancel: releases,
		Callbacks:       leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	go elector.Run(ctx)
	return stop
}

// Processes that use client-go's election, as earlier versions of a program may, take part
// in the same one.
func TestElectionWithClientGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		requireHolder := func(want string, transitions int32) {
			t.Helper()
			lease, err := client.CoordinationV1().Leases(usual.ResourceNamespace).Get(t.Context(), usual.ResourceName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := ptr.Deref(lease.Spec.HolderIdentity, ""); got != want {
				t.Fatalf("%q holds the lease, want %q", got, want)
			}
			if got := ptr.Deref(lease.Spec.LeaseTransitions, -1); got != transitions {
				t.Errorf("there were %d transitions, want %d", got, transitions)
			}
		}

		stop := runClientGo(t, client, "theirs-1", true)
		synctest.Wait()
		ours := run(t, client, usual)
		kittest.Pass(time.Minute)
		requireHolder("theirs-1", 0)

		stop()
		kittest.Pass(time.Millisecond)
		requireHolder(ours.candidate.identity, 1)
		if !isDone(ours.leads) {
			t.Error("the holder of the lease does not lead")
		}
		stop = runClientGo(t, client, "theirs-2", false)
		kittest.Pass(time.Minute)
		requireHolder(ours.candidate.identity, 1)

		ours.stop()
		ours.end()
		kittest.Pass(5 * time.Second) // client-go looks every two to four seconds
		requireHolder("theirs-2", 2)

		next := run(t, client, usual)
		kittest.Pass(time.Minute)
		stop() // without a release, like a crash
		kittest.Pass(usual.LeaseDuration.Duration - usual.RetryPeriod.Duration - time.Second)
		requireHolder("theirs-2", 2)
		kittest.Pass(usual.RetryPeriod.Duration + time.Second)
		requireHolder(next.candidate.identity, 3)
	})
}
