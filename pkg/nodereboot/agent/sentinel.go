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
)

// The words that WatchSentinel writes.
const (
	present = "present"
	absent  = "absent"
)

// errSentinelUnknown means that WatchSentinel has not looked yet. Nothing is decided before
// it has: a sentinel file that still exists after a reboot must be recognized as such.
var errSentinelUnknown = errors.New("it is not known yet whether the sentinel file exists")

// WatchSentinel writes to the file state whether the file sentinel exists, and looks that
// often, until ctx ends. It is meant for a process without privileges: the directory of a
// sentinel file may have sockets that root could connect to.
func WatchSentinel(ctx context.Context, sentinel, state string, every time.Duration) error {
	for written := ""; ; {
		found := absent
		if _, err := os.Stat(sentinel); err == nil {
			found = present
		} else if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("looking for the sentinel file: %w", err)
		}
		if found != written {
			if err := replace(state, found+"\n"); err != nil {
				return fmt.Errorf("writing the state of the sentinel file: %w", err)
			}
			klog.FromContext(ctx).Info("Looked for the sentinel file", "file", sentinel, "is", found)
			written = found
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// replace writes a file atomically.
func replace(path, content string) error {
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(temp, []byte(content), 0o644); err != nil { //nolint:gosec // another user reads it
		return err
	}
	return os.Rename(temp, path)
}

// sentinel reports whether the sentinel file requests a reboot.
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
		return false, fmt.Errorf("%s has %q, which is neither %s nor %s", a.config.SentinelState, state, present, absent)
	}
}
