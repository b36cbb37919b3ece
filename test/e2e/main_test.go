// Package e2e tests the controller as users run it: the real binary, under its own
// service account, against a real control plane. See README.md.
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

// parallelTests exceeds the usual number of processors because tests mostly wait.
const parallelTests = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("skipped: these tests start clusters")
		return
	}
	// While a test's API server is down, clients in this process log errors. These are
	// expected.
	klog.SetLogger(logr.Discard())
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", parallelTests); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	err := errors.Join(withController.close(), withoutController.close(), removeBinary())
	if flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "" && code == 0 {
		err = errors.Join(err, requireLeastPrivilege())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "FAIL: %v\n", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// NewNamespace returns a namespace for the test, in a cluster that it shares with other
// tests. One controller serves all namespaces there; it reports an Icecream as Stalled
// after three seconds.
func NewNamespace(t *testing.T) *lab.Namespace {
	t.Helper()
	n := withController.open(t).NewNamespace(t)
	n.Controller = withController.controller
	return n
}

// NewQuietNamespace returns a namespace for the test, in a cluster that it shares with
// other tests. The only controllers there are those that tests start, each restricted to
// its own namespace: see Namespace.StartController.
func NewQuietNamespace(t *testing.T) *lab.Namespace {
	t.Helper()
	return withoutController.open(t).NewNamespace(t)
}

// NewLab starts a cluster for this test alone.
func NewLab(t *testing.T, o lab.Options) *lab.Lab {
	t.Helper()
	o.Binary, o.Privileges = binary(t), &privileges
	return lab.New(t, o)
}

// privileges collects the permissions that the controllers of all tests were granted and
// used.
var privileges lab.Privileges

// knownUnused holds the permissions whose use does not show in any request, each
// with its reason.
var knownUnused = map[string]string{
	"update controller.nicoleh.io/icecreams/finalizers": "the admission plugin OwnerReferencesPermissionEnforcement, which not every cluster enables, requires it for owner references that block the deletion of the owner",
}

// requireLeastPrivilege returns an error if, over all tests, a controller was refused a
// request that its roles should allow, or never used a permission that they grant.
func requireLeastPrivilege() (err error) {
	for _, request := range privileges.Forbidden() {
		err = errors.Join(err, fmt.Errorf("the roles do not grant a permission that the controller needs: %s", request))
	}
	for _, permission := range privileges.Unused() {
		if knownUnused[permission] == "" {
			err = errors.Join(err, fmt.Errorf("the roles grant a permission that the controller never used: %s", permission))
		}
	}
	return err
}

// The clusters that tests share.
var (
	withController    = shared{flags: []string{"-icecream-stall-after=3s", "-v=4"}}
	withoutController = shared{}
)

// shared is a Lab that is opened for the first test that needs it.
type shared struct {
	flags []string // of the controller for all namespaces; nil for no controller

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
	// Later tests need the cluster, too, so it must not end with the first test's
	// context.
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

// build builds the controller once, with the race detector enabled.
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
