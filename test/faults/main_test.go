// Package faults runs the real controller on a real control plane, with faults between the
// two or in one of them, and checks what it makes of them. See README.md.
package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/test/lab"
)

// parallelTests exceeds the usual number of processors because tests mostly wait.
const parallelTests = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("skipped: these tests start clusters")
		return
	}
	// Clients in this process log errors while the API server is down.
	klog.SetLogger(logr.Discard())
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", parallelTests); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if err := errors.Join(closeCluster(), removeBinary()); err != nil {
		fmt.Fprintf(os.Stderr, "FAIL: %v\n", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// build builds the controller once, with the race detector enabled.
var build = sync.OnceValues(func() (path string, err error) {
	path, removeBinary, err = lab.BuildController(context.Background(), "-race")
	return path, err
})

// open starts the cluster that the tests share.
var open = sync.OnceValues(func() (*lab.Lab, error) {
	path, err := build()
	if err != nil {
		return nil, err
	}
	// Later tests need the cluster, too, so it must not end with the first test's context.
	l, err := lab.Open(context.Background(), lab.Options{Binary: path})
	if err == nil {
		closeCluster = l.Close
	}
	return l, err
})

var removeBinary, closeCluster = nothing, nothing

func nothing() error { return nil }

// cluster returns the cluster that the tests share. A test that breaks it must not be
// parallel: such tests come first, one by one.
func cluster(t *testing.T) *lab.Lab {
	t.Helper()
	l, err := open()
	if err != nil {
		t.Fatal(err)
	}
	return l
}
