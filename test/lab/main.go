package lab

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
)

// parallelTests exceeds the usual number of processors because tests mostly wait. Each may
// have a cluster of 0.7 GB.
const parallelTests = "12"

// Main is the TestMain of a package whose tests start clusters. It runs the tests, calls end
// with the exit code that they deserve, and exits. An error of end fails the package. With
// -short it runs nothing.
func Main(m *testing.M, end func(code int) error) {
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
	if err := end(code); err != nil {
		fmt.Fprintf(os.Stderr, "FAIL: %v\n", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Shared is a Lab that tests share. It is opened for the first test that needs it.
type Shared struct {
	// Suite is the tests.
	Suite *Suite
	// Flags are those of a controller for all namespaces. Nil means that there is none.
	Flags []string

	once       sync.Once
	lab        *Lab
	controller *Controller
	err        error
}

// NewNamespace returns a namespace of the Lab for the test.
func (s *Shared) NewNamespace(t testing.TB) *Namespace {
	t.Helper()
	n := s.Lab(t).NewNamespace(t)
	n.Controller = s.controller
	return n
}

// Lab returns the Lab.
func (s *Shared) Lab(t testing.TB) *Lab {
	t.Helper()
	path := s.Suite.Path(t, s.Suite.Program.Main)
	s.once.Do(func() { s.err = s.open(path) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.lab
}

func (s *Shared) open(path string) (err error) {
	// Later tests need the cluster, too, so it must not end with the first test's
	// context.
	ctx := context.Background()
	if s.lab, err = Open(ctx, s.Suite.options(Options{}, path)); err != nil || s.Flags == nil {
		return err
	}
	if s.controller, err = s.lab.NewController(ctx, s.lab.program.Namespace, s.lab.program.Account, s.Flags...); err != nil {
		return err
	}
	return s.controller.Launch()
}

// Close closes the Lab if it was opened; see [Lab.Close].
func (s *Shared) Close() (err error) {
	if s.controller != nil {
		err = s.controller.Terminate()
	}
	if s.lab != nil {
		err = errors.Join(err, s.lab.Close())
	}
	return err
}
