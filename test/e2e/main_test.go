// Package e2e tests the controller as users run it: the real binary, under its own
// service account, against a real control plane. See README.md.
//
// # Where a test runs
//
//   - n := NewNamespace(t), and each script: in a cluster that tests share. One controller, with the defaults, serves all
//     namespaces.
//   - n := NewQuietNamespace(t): in a shared cluster, with only the controllers that the test starts by
//     n.StartController(t, flags...). They are restricted to the namespace and have only a Role there.
//   - l := NewLab(t, lab.Options{Nodes: 5}): in a cluster of its own, started in 5 s, with only the controllers that the
//     test starts by l.StartController(t, flags...). They have the ClusterRole of artifacts.
//
// Use the first unless the test stops the controller, counts its requests, or disrupts the cluster. All tests call
// t.Parallel, except TestEconomy, which makes 150 Icecreams Ready. The namespace of a test is deleted when the test ends.
// The name of an image determines how its Pods fare: see hack/local-cluster/cluster/stages.yaml.
//
// # What every test also checks
//
//   - The log of a controller contains no data race, panic (recovered or not) or stack trace, and SIGTERM ends the
//     controller with exit code 0.
//   - Every status that a controller writes is true to its conditions and spec, and kstatus reads it as deployment tools
//     should (lab/invariants.go).
//   - No policy of the program denies what it requests (lab/denials.go).
//   - Over all tests of a package, each service account of the program uses every permission that it has, and is refused
//     none that it needs (lab/suite.go).
package e2e

import (
	"testing"

	"nicoleh.io/k8s-controller/test/lab"
)

func TestMain(m *testing.M) { suite.Main(m, &withController, &withoutController) }

var suite = lab.Suite{
	Program: lab.Icecream,
	KnownUnused: map[string]string{
		"k8s-controller: update controller.nicoleh.io/icecreams/finalizers": "the admission plugin OwnerReferencesPermissionEnforcement, which not every cluster enables, requires it for owner references that block the deletion of the owner",
		"k8s-controller: delete apps/deployments":                           "the same plugin requires it for a change of owner references; the policy denies deletions",
	},
}

// The clusters that tests share.
var (
	withController    = lab.Shared{Suite: &suite, Flags: []string{"-v=4"}}
	withoutController = lab.Shared{Suite: &suite}
)

// NewNamespace returns a namespace for the test, in a cluster that it shares with other
// tests. One controller serves all namespaces there.
func NewNamespace(t *testing.T) *lab.Namespace {
	t.Helper()
	return withController.NewNamespace(t)
}

// NewQuietNamespace returns a namespace for the test, in a cluster that it shares with
// other tests. The only controllers there are those that tests start, each restricted to
// its own namespace: see Namespace.StartController.
func NewQuietNamespace(t *testing.T) *lab.Namespace {
	t.Helper()
	return withoutController.NewNamespace(t)
}

// NewLab starts a cluster for this test alone.
func NewLab(t *testing.T, o lab.Options) *lab.Lab {
	t.Helper()
	return suite.NewLab(t, o)
}
