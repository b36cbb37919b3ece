package footprint

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

// One processor is enough after a quiet period, until after a busy one.
func TestIsOneEnough(t *testing.T) {
	one := false
	for i, period := range []struct {
		share float64
		want  bool
	}{
		{1.9, false},
		{0.76, false},
		{0.51, false},
		{0.49, true},
		{0.51, true},
		{0.74, true},
		{0.76, false},
		{0.51, false},
		{0, true},
		{1, false},
	} {
		if one = isOneEnough(period.share, one); one != period.want {
			t.Fatalf("period %d: after %g of a processor was used, isOneEnough = %t, want %t", i, period.share, one, period.want)
		}
	}
}

// Reduce sets what the environment does not, and leaves it as it was before.
func TestReduce(t *testing.T) {
	if _, err := cpuTime(); err != nil {
		t.Skip(err)
	}
	for _, tt := range []struct {
		gogc            string
		all, percent    int
		wantProcs, want int
	}{
		{"", 3, 100, 1, GCPercent},
		{"100", 3, 100, 1, 100},
		{"", 1, 100, 1, GCPercent},
	} {
		t.Setenv("GOMAXPROCS", "is set")
		t.Setenv("GOGC", tt.gogc)
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(tt.all))
		defer debug.SetGCPercent(debug.SetGCPercent(tt.percent))

		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			Reduce(ctx, clock.RealClock{})
		}()
		for deadline := time.Now().Add(time.Minute); runtime.GOMAXPROCS(0) != tt.wantProcs || gcPercent() != tt.want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%+v: GOMAXPROCS is %d, and GOGC %d", tt, runtime.GOMAXPROCS(0), gcPercent())
			}
		}
		cancel()
		<-returned
		if procs, percent := runtime.GOMAXPROCS(0), gcPercent(); procs != tt.all || percent != tt.percent {
			t.Errorf("%+v: GOMAXPROCS is %d, and GOGC %d afterwards", tt, procs, percent)
		}
	}
}

func gcPercent() int {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}

// The CPU time of the process grows while it computes.
func TestCPUTime(t *testing.T) {
	before, err := cpuTime()
	if err != nil {
		t.Skip(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if after, _ := cpuTime(); after > before {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it has not grown in a minute")
		}
	}
}
