package lab

import (
	"errors"
	"flag"
	"fmt"
	"testing"
)

// Suite is the tests of a package about one program. They share its binary. Together they use every
// permission that the program's manifests grant.
type Suite struct {
	Program Program
	// Accounts are other service accounts that the manifests have and tests use.
	Accounts []string
	// KnownUnused are permissions whose use shows in no request, such as "account: update
	// apps/deployments", each with its reason.
	KnownUnused map[string]string
	Binaries

	privileges privileges
}

// NewLab starts a cluster for this test alone.
func (s *Suite) NewLab(t testing.TB, o Options) *Lab {
	t.Helper()
	return New(t, s.options(o, s.Path(t, s.Program.Main)))
}

// options completes the options of a Lab.
func (s *Suite) options(o Options, binary string) Options {
	o.Program, o.Binary = s.Program, binary
	o.privileges, o.accounts = &s.privileges, append([]string{s.Program.Account}, s.Accounts...)
	return o
}

// Main is the TestMain of a package; see [Main]. shared are the Labs that its tests share. If all
// tests ran and passed, and an account was refused a request that its roles should allow, or never
// used a permission that they grant, the package fails.
func (s *Suite) Main(m *testing.M, shared ...*Shared) {
	Main(m, func(code int) error {
		err := s.Close(shared...)
		if flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "" && code == 0 {
			err = errors.Join(err, s.requireLeastPrivilege())
		}
		return err
	})
}

// Close closes Labs that tests share, and removes what was built.
func (s *Suite) Close(shared ...*Shared) (err error) {
	for _, lab := range shared {
		err = errors.Join(err, lab.Close())
	}
	return errors.Join(err, s.Remove())
}

func (s *Suite) requireLeastPrivilege() (err error) {
	for _, request := range s.privileges.forbiddenRequests() {
		err = errors.Join(err, fmt.Errorf("the roles do not grant a permission that is needed: %s", request))
	}
	for _, permission := range s.privileges.unused() {
		if s.KnownUnused[permission] == "" {
			err = errors.Join(err, fmt.Errorf("the roles grant a permission that was never used: %s", permission))
		}
	}
	return err
}
