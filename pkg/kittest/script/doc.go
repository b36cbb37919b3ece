// Package script lets a unit test play the cluster around a controller. The controller's clients
// send their requests to a [Cluster], and the model of package apiserver answers them, with all
// that it knows of conflicts, preconditions, validation and finalizers.
//
// The test is everyone else: it writes objects as people, other controllers and kubelets do,
// holds up watches so that caches show the past for as long as it wants, and has requests be
// refused, changed by policies, or lost. Package simulation draws all of that from a seed
// instead.
//
// A test runs in a testing/synctest bubble, whose time is that of the cluster.
package script
