package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// pidFile contains the ID of the process that runs the cluster.
const pidFile = "pid"

// makeDir makes the directory of a cluster, or a temporary one if dir is "".
func makeDir(dir string) (path string, err error) {
	if dir == "" {
		path, err = os.MkdirTemp("", "local-cluster-")
	} else if path, err = filepath.Abs(dir); err == nil {
		err = clearDir(path)
	}
	if err != nil {
		return "", err
	}
	for _, name := range []string{"bin", "config", "etcd", "logs", "pids", "pki", "run"} {
		if err := os.MkdirAll(filepath.Join(path, name), 0o700); err != nil {
			return "", err
		}
	}
	return path, os.WriteFile(filepath.Join(path, pidFile), strconv.AppendInt(nil, int64(os.Getpid()), 10), 0o600)
}

// clearDir removes the files of an earlier cluster. It is an error if that one still runs, or if
// there are other files.
func clearDir(dir string) error {
	if pid := readPID(filepath.Join(dir, pidFile)); isAlive(pid) {
		return fmt.Errorf("is another cluster running in %s? Process %d is", dir, pid)
	}
	if _, err := os.Stat(filepath.Join(dir, "pids")); err == nil {
		return os.RemoveAll(dir)
	}
	entries, err := os.ReadDir(dir)
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty, and not a cluster's directory", dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// readPID returns the process ID in a file, or 0.
func readPID(path string) int {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0
	}
	return pid
}

func isAlive(pid int) bool { return pid > 0 && syscall.Kill(pid, 0) == nil }
