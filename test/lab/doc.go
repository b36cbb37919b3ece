// Package lab runs a real program against a real control plane, for tests.
//
// A Lab is a cluster with the permissions and policies of one [Program]. A Controller is a
// process of the real binary. It runs under its own service account, with no
// permissions other than those. A test can stop, kill and restart it; the test fails if
// the controller logs a data race or a panic. A Link is its connection, which a test
// can cut. A Namespace belongs to one test; most tests use little else than its methods. A
// Thief tries what a stolen token can do. A Suite is what the tests of a package share.
//
// In the background of every test, the audit log records every request that anyone makes,
// and an invariant checker looks at every status of an Icecream. It reads a status
// as deployment tools do (see kstatus). If what they read is not what the conditions and the
// spec say, the test that the namespace belongs to fails, or closing the Lab returns an error. Frameworks such as
// sigs.k8s.io/e2e-framework do neither.
package lab
