package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// record names a process beyond doubt: a pid alone is given out again.
type record struct {
	PID     int    `json:"pid"`
	Started string `json:"started"`
}

// errGone says that no process has the pid.
var errGone = errors.New("no such process")

const (
	recordSuffix = ".json"
	reapWait     = 5 * time.Second
	reapPoll     = 10 * time.Millisecond
)

func writeRecord(dir, name string, pid int) (path string, err error) {
	started, err := startOf(pid)
	if errors.Is(err, errGone) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("recording %s: %w", name, err)
	}
	content, err := json.Marshal(record{PID: pid, Started: started})
	if err != nil {
		return "", fmt.Errorf("recording %s: %w", name, err)
	}
	path = filepath.Join(dir, name+recordSuffix)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("recording %s: %w", name, err)
	}
	return path, nil
}

// Reap kills the processes that the records in dir name and that still run,
// and returns when they are gone. A process that is not provably the recorded
// one is left alone. The caller makes sure that nobody runs a cluster there.
func Reap(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+recordSuffix))
	if err != nil {
		return fmt.Errorf("listing records: %w", err)
	}
	var failures []error
	for _, path := range paths {
		if err := reap(path); err != nil {
			failures = append(failures, fmt.Errorf("ending what is left of a former run: %w", err))
		}
	}
	return errors.Join(failures...)
}

func reap(path string) error {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var left record
	// A record cut short by a crash proves nothing about any process.
	if json.Unmarshal(content, &left) == nil && left.PID > 1 {
		if err := left.kill(); err != nil {
			return err
		}
	}
	return os.Remove(path)
}

func (r record) kill() error {
	// The handle is taken before the check, so that where the kernel has
	// handles to processes the one checked is the one killed.
	process, err := os.FindProcess(r.PID)
	if err != nil {
		return nil // there is no such process
	}
	defer process.Release() //nolint:errcheck // nothing depends on it
	for deadline := time.Now().Add(reapWait); r.isAlive(); time.Sleep(reapPoll) {
		if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("killing process %d: %w", r.PID, err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d does not end", r.PID)
		}
	}
	return nil
}

func (r record) isAlive() bool {
	started, err := startOf(r.PID)
	return err == nil && started == r.Started
}
