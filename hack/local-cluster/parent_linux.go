package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const parentPoll = 500 * time.Millisecond

// errOrphaned is the cause of the end of a command that has lost its parent.
var errOrphaned = errors.New("the parent process has ended")

// endWithParent ends the context when the process that started this one ends,
// or one of those that started that one merely to run this: "go run" and make.
func endWithParent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	lineage := ancestors(os.Getpid())
	// The kernel tells at once when the parent ends, but also when only the
	// thread of it ends that started this process. So it is but a reason to
	// look.
	hint := make(chan os.Signal, 1)
	signal.Notify(hint, syscall.SIGUSR1)
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGUSR1), 0, 0, 0)
	go func() {
		defer signal.Stop(hint)
		ticker := time.NewTicker(parentPoll)
		defer ticker.Stop()
		for isIntact(lineage) {
			select {
			case <-ctx.Done():
				return
			case <-hint:
			case <-ticker.C:
			}
		}
		cancel(errOrphaned)
	}()
	return ctx, func() { cancel(nil) }
}

// kin is a process and the parent it had.
type kin struct{ pid, parent int }

// ancestors lists pid and those above it for as long as each is the child of
// a launcher. A child of init has no parent to lose.
func ancestors(pid int) []kin {
	var lineage []kin
	for {
		_, parent, err := status(pid)
		if err != nil || parent <= 1 {
			return lineage
		}
		lineage = append(lineage, kin{pid: pid, parent: parent})
		name, _, err := status(parent)
		if err != nil || !isLauncher(name) {
			return lineage
		}
		pid = parent
	}
}

// isIntact reports whether everybody still has the parent they had: the kernel
// gives an orphan another, so no number that is given out again can deceive.
func isIntact(lineage []kin) bool {
	for _, k := range lineage {
		if _, parent, err := status(k.pid); err != nil || parent != k.parent {
			return false
		}
	}
	return true
}

func isLauncher(name string) bool {
	return name == "go" || name == "make" || name == "gmake"
}

// status reads the name of a process and its parent's pid.
func status(pid int) (name string, parent int, err error) {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return "", 0, fmt.Errorf("reading the state of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(content)) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), ":\t"); key {
		case "Name":
			name = value
		case "PPid":
			if parent, err = strconv.Atoi(value); err != nil {
				return "", 0, fmt.Errorf("reading the parent of process %d: %w", pid, err)
			}
		}
	}
	return name, parent, nil
}
