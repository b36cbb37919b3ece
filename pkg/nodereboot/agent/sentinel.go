package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// What WatchSentinel writes.
const (
	present = "present"
	absent  = "absent"
)

// errSentinelUnknown is why nothing is decided before WatchSentinel has looked for the
// first time: after a reboot, a sentinel that has outlived it asks with a delay.
var errSentinelUnknown = errors.New("nobody has said yet whether the sentinel file is there")

// WatchSentinel says in the file state whether the file sentinel is there, and looks
// that often, until ctx ends. It is for a process without privileges: the directory of a
// sentinel may hold sockets that root may connect to.
func WatchSentinel(ctx context.Context, sentinel, state string, every time.Duration, clock clock.Clock) error {
	for written := ""; ; {
		found := absent
		if _, err := os.Stat(sentinel); err == nil {
			found = present
		} else if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("looking for the sentinel: %w", err)
		}
		if found != written {
			if err := replace(state, found+"\n"); err != nil {
				return fmt.Errorf("writing what the sentinel is: %w", err)
			}
			klog.FromContext(ctx).Info("Looked for the sentinel", "file", sentinel, "is", found)
			written = found
		}
		select {
		case <-ctx.Done():
			return nil
		case <-clock.After(every):
		}
	}
}

// replace writes a file that nobody ever sees half of.
func replace(path, content string) error {
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(temp, []byte(content), 0o644); err != nil { //nolint:gosec // another user reads it
		return err
	}
	return os.Rename(temp, path)
}

// sentinel tells whether something on the node asks for a reboot.
func (a *Agent) sentinel() (bool, error) {
	if a.config.SentinelState == "" {
		if a.config.SentinelFile == "" {
			return false, nil
		}
		_, err := os.Stat(a.config.SentinelFile)
		return err == nil, nil
	}
	content, err := os.ReadFile(a.config.SentinelState)
	if errors.Is(err, os.ErrNotExist) {
		return false, errSentinelUnknown
	}
	if err != nil {
		return false, err
	}
	switch state := strings.TrimSpace(string(content)); state {
	case present, absent:
		return state == present, nil
	default:
		return false, fmt.Errorf("%s says %q, which is neither %s nor %s", a.config.SentinelState, state, present, absent)
	}
}
