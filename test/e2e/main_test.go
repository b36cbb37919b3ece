// Package e2e tests the controller as users run it: the real binary, under its own
// service account, against a real control plane. See README.md.
package e2e

import (
	"errors"
	"flag"
	"fmt"
	"testing"

	"nicoleh.io/k8s-controller/test/lab"
)

func TestMain(m *testing.M) {
	lab.Main(m, func(code int) error {
		err := errors.Join(withController.Close(), withoutController.Close(), binaries.Remove())
		if flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "" && code == 0 {
			err = errors.Join(err, requireLeastPrivilege())
		}
		return err
	})
}

// The programs and clusters that tests share.
var (
	binaries          lab.Binaries
	withController    = lab.Shared{Binaries: &binaries, Privileges: &privileges, Flags: []string{"-v=4"}}
	withoutController = lab.Shared{Binaries: &binaries, Privileges: &privileges}
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
	o.Binary, o.Privileges = binaries.Controller(t), &privileges
	return lab.New(t, o)
}

// privileges collects the permissions that the controllers of all tests were granted and
// used.
var privileges lab.Privileges

// knownUnused holds the permissions whose use does not show in any request, each
// with its reason.
var knownUnused = map[string]string{
	"update controller.nicoleh.io/icecreams/finalizers": "the admission plugin OwnerReferencesPermissionEnforcement, which not every cluster enables, requires it for owner references that block the deletion of the owner",
	"delete apps/deployments":                           "the same plugin requires it for a change of owner references; the policy denies deletions",
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
