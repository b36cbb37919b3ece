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

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
)

// WatchSentinel writes absent if there is no sentinel file, and unknown and an error if it
// cannot tell. Otherwise, it writes when the file was last modified (RFC 3339).
const (
	absent  = "absent"
	unknown = "unknown: "
)

// errSentinelUnknown means that WatchSentinel has not looked yet. Nothing is decided before
// it has: a sentinel file that still exists after a reboot must be recognized as such.
var errSentinelUnknown = errors.New("it is not known yet whether the sentinel file exists")

// WatchSentinel writes to the file state whether the file sentinel exists, and when it was
// last modified. It looks once per interval, until ctx ends. It is meant for a process without
// privileges: the directory of a sentinel file may have sockets that root could connect to.
func WatchSentinel(ctx context.Context, sentinel, state string, every time.Duration) error {
	for written := ""; ; {
		found := absent
		switch at, err := modified(sentinel); {
		case err != nil:
			found = unknown + strings.ReplaceAll(err.Error(), "\n", " ")
		case !at.IsZero():
			found = at.UTC().Format(time.RFC3339Nano)
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

// modified returns when a file was last modified; zero if there is none.
func modified(path string) (time.Time, error) {
	file, err := os.Stat(path)
	switch {
	case path == "" || errors.Is(err, os.ErrNotExist):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, fmt.Errorf("looking for the sentinel file: %w", err)
	}
	return file.ModTime(), nil
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
		return modified(a.config.SentinelFile)
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
	if why, isUnknown := strings.CutPrefix(state, unknown); isUnknown {
		return time.Time{}, errors.New(why)
	}
	at, isTime := request.Time(state)
	if !isTime {
		return time.Time{}, fmt.Errorf("%s has %q, which is neither %s nor a time", a.config.SentinelState, state, absent)
	}
	return at, nil
}
