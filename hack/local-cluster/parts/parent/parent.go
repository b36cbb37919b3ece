// Package parent ends a program together with the process that started it.
package parent

import (
	"os"
	"time"
)

// Watch exits as soon as the parent process has ended, even if it was killed.
func Watch() {
	parent := os.Getppid()
	go func() {
		for os.Getppid() == parent {
			time.Sleep(200 * time.Millisecond)
		}
		os.Exit(1)
	}()
}
