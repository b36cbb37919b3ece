package worker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// steady starts a loop whose syncs do nothing and returns it with a function
// that waits for the end of one.
func steady(tb testing.TB, workers int) (l *worker.Loop, synced func()) {
	done := make(chan struct{})
	l = worker.New("cost", func(context.Context, cache.ObjectName) (time.Duration, error) { return 0, nil },
		worker.WithObserver(func(worker.Outcome) { done <- struct{}{} }),
		worker.WithKeys(slices.Values([]cache.ObjectName{chocolate})))
	ctx, cancel := context.WithCancel(tb.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- l.Run(ctx, workers) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			tb.Error(err)
		}
	})
	<-done // It runs now: nothing that is added gets dropped.
	return l, func() { <-done }
}

// What a controller pays per event and per sync is paid tens of thousands of
// times in a large cluster.
func TestCost(t *testing.T) {
	l, synced := steady(t, 1)
	addAndSync := func() {
		l.Add(vanilla)
		synced()
	}
	// The context and the logger that carry the name, and the queue's slice.
	if allocs := testing.AllocsPerRun(1000, addAndSync); allocs > 9 {
		t.Errorf("adding and syncing an object: %v allocations, want at most 9", allocs)
	}

	standby := worker.New("cost", nil)
	if allocs := testing.AllocsPerRun(1000, func() { standby.Add(vanilla) }); allocs != 0 {
		t.Errorf("adding an object to a loop that does not run: %v allocations, want 0", allocs)
	}
}

func BenchmarkAddToSync(b *testing.B) {
	for _, workers := range []int{1, 4} {
		b.Run(fmt.Sprintf("%d workers", workers), func(b *testing.B) {
			l, synced := steady(b, workers)
			b.ReportAllocs()
			for b.Loop() {
				l.Add(vanilla)
				synced()
			}
		})
	}
}

// BenchmarkBacklog is the start of a controller: all objects at once.
func BenchmarkBacklog(b *testing.B) {
	const objects = 5000
	names := make([]cache.ObjectName, objects)
	for i := range names {
		names[i] = cache.NewObjectName("default", fmt.Sprintf("gadget-%d", i))
	}
	l, synced := steady(b, 4)
	b.ReportAllocs()
	for b.Loop() {
		for _, name := range names {
			l.Add(name)
		}
		for range names {
			synced()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/objects, "ns/object")
}
