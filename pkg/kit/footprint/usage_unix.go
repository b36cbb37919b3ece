//go:build unix

package footprint

import (
	"syscall"
	"time"
)

// cpuTime returns how much CPU time the process has used so far, for itself and in the
// kernel; see getrusage(2).
func cpuTime() (time.Duration, error) {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), err
}
