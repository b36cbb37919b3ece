// Package lab runs the real controller against a real control plane, for tests.
//
// A Lab is a cluster with the CRD and the permissions of artifacts/ applied by
// the cluster's own kubectl. A Controller is the real binary, running under its
// own service account with no other rights than those; it is stopped, killed and
// started again at will, and fails its test when its log tells of a data race or
// a panic. A Namespace belongs to one test and is what tests mostly talk to.
//
// Two witnesses look on. The audit log has every request that anybody made. And
// every status that the controller writes is read the way deployment tools read
// it (kstatus): one that claims more than what is true is found out when the Lab
// is closed, whichever test it belonged to.
package lab
