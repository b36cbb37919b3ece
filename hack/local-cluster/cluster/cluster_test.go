package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	if _, err := makeDir(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := makeDir(dir); err == nil || !strings.Contains(err.Error(), "is another cluster running in "+dir) {
		t.Errorf("a directory that is in use: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, pidFile)); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "etcd", "data")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := makeDir(dir); err != nil {
		t.Errorf("the directory of an earlier cluster: %v", err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("files of an earlier cluster are left")
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := makeDir(other); err == nil || !strings.Contains(err.Error(), "not a cluster's directory") {
		t.Errorf("a directory with other files: %v", err)
	}
}
