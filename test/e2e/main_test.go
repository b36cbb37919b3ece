// Package e2e tests the controller as its users have it: the real binary under
// its own service account on a real control plane. See README.md.
package e2e

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

// Tests mostly wait, so more of them run at a time than there are processors.
const parallelTests = "10"

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("skipped: these tests boot clusters")
		return
	}
	// What clients in this process say of an API server that a test has killed
	// is no news.
	klog.SetLogger(logr.Discard())
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", parallelTests); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	err := errors.Join(busy.close(), quiet.close(), removeBinary())
	if flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "" && code == 0 {
		err = errors.Join(err, requireLeastPrivilege())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "FAIL: %v\n", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// NewNamespace returns a namespace for the test in a cluster that it shares. One
// controller works for all namespaces there; it calls an Icecream Stalled after
// three seconds.
func NewNamespace(t *testing.T) *lab.Namespace {
	t.Helper()
	n := busy.open(t).NewNamespace(t)
	n.Controller = busy.controller
	return n
}

// NewQuietNamespace returns a namespace for the test in a cluster that it shares.
// No controller works there but what tests start, each in its own namespace: see
// Namespace.StartController.
func NewQuietNamespace(t *testing.T) *lab.Namespace {
	t.Helper()
	return quiet.open(t).NewNamespace(t)
}

// NewLab boots a cluster for the test alone.
func NewLab(t *testing.T, o lab.Options) *lab.Lab {
	t.Helper()
	o.Binary, o.Privileges = binary(t), &privileges
	return lab.New(t, o)
}

// privileges are those of all controllers in all tests.
var privileges lab.Privileges

// unusedForAReason are permissions that no request shows the use of.
var unusedForAReason = map[string]string{
	"update controller.nicoleh.io/icecreams/finalizers": "the admission plugin OwnerReferencesPermissionEnforcement, which not every cluster has, asks for it where an owner reference blocks the owner's deletion",
}

// requireLeastPrivilege is an error if, in all tests together, a controller was
// refused anything that its roles should grant, or has not used all that they do.
func requireLeastPrivilege() (err error) {
	for _, request := range privileges.Forbidden() {
		err = errors.Join(err, fmt.Errorf("the roles do not allow what the controller needs: %s", request))
	}
	for _, permission := range privileges.Unused() {
		if unusedForAReason[permission] == "" {
			err = errors.Join(err, fmt.Errorf("the roles allow what the controller does not need: %s", permission))
		}
	}
	return err
}

// The clusters that tests share.
var (
	busy  = shared{flags: []string{"-icecream-stall-after=3s", "-v=4"}}
	quiet = shared{}
)

// shared is a Lab that is opened for the first test that wants it.
type shared struct {
	flags []string // of the controller for all namespaces; nil for none

	once       sync.Once
	lab        *lab.Lab
	controller *lab.Controller
	err        error
}

func (s *shared) open(t *testing.T) *lab.Lab {
	t.Helper()
	path := binary(t)
	s.once.Do(func() { s.err = s.boot(path) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.lab
}

func (s *shared) boot(path string) (err error) {
	// The test that came first is not the last that needs it.
	ctx := context.Background()
	if s.lab, err = lab.Open(ctx, lab.Options{Binary: path, Privileges: &privileges}); err != nil || s.flags == nil {
		return err
	}
	if s.controller, err = s.lab.NewController(ctx, lab.SystemNamespace, lab.ServiceAccount, s.flags...); err != nil {
		return err
	}
	return s.controller.Launch()
}

func (s *shared) close() (err error) {
	if s.controller != nil {
		err = s.controller.Terminate()
	}
	if s.lab != nil {
		err = errors.Join(err, s.lab.Close())
	}
	return err
}

// build builds the controller once, such that it reports data races.
var build = sync.OnceValues(func() (path string, err error) {
	path, removeBinary, err = lab.BuildController(context.Background(), "-race")
	return path, err
})

var removeBinary = func() error { return nil }

func binary(t *testing.T) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
