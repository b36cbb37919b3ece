// Package footprint keeps small what a process takes of its node while it has little to do,
// without a limit to what it may take when it has much: processors and memory.
//
// A controller mostly waits, and what comes goes through several goroutines: from the
// connection to the decoder of a watch, to the cache, to a queue, to a worker. Each time
// that one of them makes another ready while a processor is idle, the Go runtime wakes a
// thread to look for work, which is mostly done before that thread has found it. With one
// processor, there is no other to wake.
package footprint

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"k8s.io/utils/clock"
)

// GCPercent is by how much the heap may grow before garbage is collected while there is
// little to do, unless the environment sets GOGC. It is less than Go's 100: a process takes
// its memory all the time, and its CPU time only when something happens.
const GCPercent = 70

// Period is how often Reduce looks at what the process has used.
const Period = 200 * time.Millisecond

// One processor is enough for a process that uses less than few of it, and is not for one
// that uses more than many. In between, nothing changes.
const few, many = 0.5, 0.75

// Reduce sets GOMAXPROCS and GOGC by the CPU time that the process uses, until ctx ends: to 1
// and GCPercent after a Period with little, and after a busy one back to what they were, which
// is what the environment sets, or else the runtime's defaults: 100, and the CPU limit of the
// container. If the operating system does not say how much CPU time was used, nothing changes.
func Reduce(ctx context.Context, clock clock.WithTicker) {
	used, err := cpuTime()
	if err != nil {
		return
	}
	ticker := clock.NewTicker(Period)
	defer ticker.Stop()
	var restore func() // nil unless the settings are reduced
	defer func() {
		if restore != nil {
			restore()
		}
	}()
	for at := clock.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		// More than a Period may have passed: a ticker drops ticks for a process that did
		// not get a processor in time.
		now := clock.Now()
		total, _ := cpuTime()
		share := (total - used).Seconds() / now.Sub(at).Seconds()
		used, at = total, now
		switch isEnough := isOneEnough(share, restore != nil); {
		case isEnough && restore == nil:
			restore = reduce()
		case !isEnough && restore != nil:
			restore()
			restore = nil
		}
	}
}

// reduce sets GOMAXPROCS and GOGC for a process with little to do, and returns what sets them
// back.
func reduce() (restore func()) {
	all := runtime.GOMAXPROCS(1)
	restore = runtime.SetDefaultGOMAXPROCS // The container's CPU limit may have changed.
	if os.Getenv("GOMAXPROCS") != "" {
		restore = func() { runtime.GOMAXPROCS(all) }
	}
	if os.Getenv("GOGC") != "" {
		return restore
	}
	restoreProcs, percent := restore, debug.SetGCPercent(GCPercent)
	return func() {
		restoreProcs()
		debug.SetGCPercent(percent)
	}
}

// isOneEnough reports whether one processor is enough for a process that has used that share
// of one, and for which one was enough before, or was not.
func isOneEnough(share float64, before bool) bool {
	return share < few || before && share <= many
}
