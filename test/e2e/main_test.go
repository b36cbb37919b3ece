// Package e2e tests the controller as users run it: the real binary, under its own
// service account, against a real control plane. See README.md.
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
