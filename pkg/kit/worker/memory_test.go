package worker

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kittest"
)

// Objects come and go for as long as the process lives.
func TestMemoryOfSyncedObjectsIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := map[cache.ObjectName]int{}
		l := New("test", func(_ context.Context, name cache.ObjectName) (time.Duration, error) {
			attempts[name]++
			switch attempts[name] {
			case 1:
				return 0, Requeue(apierrors.NewTooManyRequests("slow down", 1))
			case 2:
				panic("poisoned")
			case 3:
				return time.Minute, Terminal(context.DeadlineExceeded)
			}
			return 0, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() { stopped <- l.Run(ctx, 1) }()
		synctest.Wait()
		for i := range 100 {
			l.Add(cache.NewObjectName("default", fmt.Sprint(i)))
		}
		time.Sleep(time.Hour)
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}

		for name, n := range attempts {
			if n != 4 || l.backoff.NumRequeues(name) != 0 {
				t.Errorf("%s: %d attempts, %d remembered failures", name, n, l.backoff.NumRequeues(name))
			}
		}
		if len(l.held)+len(l.running)+l.queue.Len() != 0 {
			t.Errorf("left over: held %v, running %v, %d in the queue", l.held, l.running, l.queue.Len())
		}
	})
}

// A process that does not lead sees every object come and go, for months.
func TestStandbyRemembersNothing(t *testing.T) {
	const names = 1_000_000
	l := New("standby", nil)
	before := kittest.Heap()
	for i := range names {
		name := cache.NewObjectName("default", fmt.Sprintf("nightly-report-%d-5d4f8c7b9-abcde", i))
		l.Add(name)
		l.AddAfter(name, time.Second)
		l.AddUrgent(name)
	}
	if grown := kittest.Heap() - before; grown > names {
		t.Errorf("%d names left %d bytes behind, want next to none", names, grown)
	}
	runtime.KeepAlive(l)
}
