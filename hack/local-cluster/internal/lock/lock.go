// Package lock holds files against other processes. The kernel lets go of a
// lock when its holder ends, however it ends.
package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld says that another process, or another holder in this one, has it.
var ErrHeld = errors.New("locked by another process")

const poll = 200 * time.Millisecond

// Lock is a held lock.
type Lock struct{ file *os.File }

// Try takes the lock of a file, which is made if need be, or fails with
// [ErrHeld].
func Try(path string) (*Lock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening a lock: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return &Lock{file: file}, nil
	}
	_ = file.Close() // nothing was written
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("%s: %w", path, ErrHeld)
	}
	return nil, fmt.Errorf("locking %s: %w", path, err)
}

// Wait takes the lock as soon as it is free; it calls busy once if it has to
// wait.
func Wait(ctx context.Context, path string, busy func()) (*Lock, error) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for waited := false; ; waited = true {
		held, err := Try(path)
		if !errors.Is(err, ErrHeld) {
			return held, err
		}
		if !waited {
			busy()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %s: %w", path, ctx.Err())
		case <-ticker.C:
		}
	}
}

// Release lets others have it. The file stays: a lock whose file is removed
// can be held twice.
func (l *Lock) Release() { _ = l.file.Close() }
