//go:build !linux

package main

import (
	"context"
	"errors"
	"os"
	"time"
)

const parentPoll = 500 * time.Millisecond

// errOrphaned is the cause of the end of a command that has lost its parent.
var errOrphaned = errors.New("the parent process has ended")

// endWithParent ends the context when the process that started this one ends.
func endWithParent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	parent := os.Getppid()
	go func() {
		ticker := time.NewTicker(parentPoll)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if os.Getppid() != parent {
					cancel(errOrphaned)
				}
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}
