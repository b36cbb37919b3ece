package footprint

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	testclock "k8s.io/utils/clock/testing"
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

// A process that does little has less than one that does much, but for what the environment
// sets, and has everything again when it does much or Reduce ends.
func TestReduce(t *testing.T) {
	if _, err := cpuTime(); err != nil {
		t.Skip(err)
	}
	const percent = 90 // neither the default, nor what Reduce sets
	tests := map[string]struct {
		environment            map[string]string
		before, reduced, again settings
	}{
		"Nothing is set":         {nil, settings{3, percent}, settings{1, GCPercent}, settings{defaultProcs(), percent}},
		"GOMAXPROCS is set":      {map[string]string{"GOMAXPROCS": "3"}, settings{3, percent}, settings{1, GCPercent}, settings{3, percent}},
		"GOMAXPROCS is set to 1": {map[string]string{"GOMAXPROCS": "1"}, settings{1, percent}, settings{1, GCPercent}, settings{1, percent}},
		"GOGC is set":            {map[string]string{"GOGC": "90"}, settings{3, percent}, settings{1, percent}, settings{defaultProcs(), percent}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"GOMAXPROCS", "GOGC"} {
				t.Setenv(variable, tt.environment[variable])
			}
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(tt.before.procs))
			defer debug.SetGCPercent(debug.SetGCPercent(tt.before.percent))
			// By this clock, the process does much or little, however long that takes.
			clock := testclock.NewFakeClock(time.Now())
			ctx, cancel := context.WithCancel(t.Context())
			returned := make(chan struct{})
			go func() {
				defer close(returned)
				Reduce(ctx, clock)
			}()
			await(t, "a ticker", clock.HasWaiters)

			for range 2 {
				clock.Step(time.Hour)
				await(t, "little", func() bool { return now() == tt.reduced })
				compute(t, Period)
				clock.Step(Period)
				await(t, "everything", func() bool { return now() == tt.again })
			}
			clock.Step(time.Hour)
			await(t, "little", func() bool { return now() == tt.reduced })
			cancel()
			<-returned
			if now() != tt.again {
				t.Errorf("the settings are %+v afterwards, want %+v", now(), tt.again)
			}
		})
	}
}

// settings are those that Reduce changes.
type settings struct{ procs, percent int }

func now() settings { return settings{runtime.GOMAXPROCS(0), gcPercent()} }

// defaultProcs returns GOMAXPROCS where the environment does not set it.
func defaultProcs() int {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	runtime.SetDefaultGOMAXPROCS()
	return runtime.GOMAXPROCS(0)
}

func await(t *testing.T, what string, isDone func() bool) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return isDone(), nil
	}); err != nil {
		t.Fatalf("waiting for %s: %v; the settings are %+v", what, err, now())
	}
}

// compute uses that much CPU time.
func compute(t *testing.T, enough time.Duration) {
	t.Helper()
	before, _ := cpuTime()
	for deadline := time.Now().Add(time.Minute); ; {
		if after, _ := cpuTime(); after-before >= enough {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the process has not had %v of CPU time in a minute", enough)
		}
	}
}

func gcPercent() int {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}
