// Package lab runs the real controller against a real control plane, for tests.
//
// A Lab is a cluster in which the CRD and the permissions of artifacts/ are installed. A
// Controller is the real binary. It runs under its own service account, with no
// permissions other than those. A test can stop, kill and restart it; the test fails if
// the controller logs a data race or a panic. A Namespace belongs to one test; most tests
// use little else than its methods.
//
// In the background of every test, the audit log records every request that anyone makes,
// and an invariant checker looks at every status that the controller writes. It reads a status
// as deployment tools do (see kstatus). If what they read is not what the conditions and the
// spec say, the test that the namespace belongs to fails, or closing the Lab returns an error.
package lab
