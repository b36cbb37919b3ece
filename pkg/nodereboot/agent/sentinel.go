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

	"nicoleh.io/k8s-controller/pkg/kit/text"
)

// absent is what WatchSentinel writes if there is no sentinel file. Otherwise, it writes
// when the file was last modified (RFC 3339).
const absent = "absent"

// errSentinelUnknown means that WatchSentinel has not looked yet. Nothing is decided before
// it has: a sentinel file that still exists after a reboot must be recognized as such.
var errSentinelUnknown = errors.New("it is not known yet whether the sentinel file exists")

// WatchSentinel writes to the file state whether the file sentinel exists, and when it was
// last modified. It looks that often, until ctx ends. It is meant for a process without
// privileges: the directory of a sentinel file may have sockets that root could connect to.
func WatchSentinel(ctx context.Context, sentinel, state string, every time.Duration) error {
	for written := ""; ; {
		found := absent
		if file, err := os.Stat(sentinel); err == nil {
			found = file.ModTime().UTC().Format(time.RFC3339Nano)
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

// sentinel returns when the sentinel file was last modified; zero if there is none.
func (a *Agent) sentinel() (time.Time, error) {
	if a.config.SentinelState == "" {
		file, err := os.Stat(a.config.SentinelFile)
		if err != nil {
			return time.Time{}, nil //nolint:nilerr // nobody requests a reboot, also if there is no such directory
		}
		return file.ModTime(), nil
	}
	content, err := os.ReadFile(a.config.SentinelState)
	if errors.Is(err, os.ErrNotExist) {
		return time.Time{}, errSentinelUnknown
	}
	if err != nil {
		return time.Time{}, err
	}
	state := strings.TrimSpace(string(content))
	if state == absent {
		return time.Time{}, nil
	}
	at, isTime := text.Time(state)
	if !isTime {
		return time.Time{}, fmt.Errorf("%s has %q, which is neither %s nor a time", a.config.SentinelState, state, absent)
	}
	return at, nil
}
