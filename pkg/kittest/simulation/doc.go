// Package simulation runs a whole program in virtual time, against a model of the API server
// and a world of other controllers, kubelets and people, while things go wrong.
//
// One history is one bubble of testing/synctest. The program is the one that ships, started
// by its flags. Its kubeconfig names an authentication provider that sends all requests to
// the model in package apiserver; nothing else of the program is touched. A [World] holds
// everything else that acts, and says what must never happen and what must be true in the end.
// This package knows no controller: their worlds are beside the test that runs them.
//
// Everything that varies is drawn from a hash of the seed and of what it is for: the n-th
// request of a process with that method and path, for example. So a history stays nearly the
// same if one of its faults is left out, which is how a failure is made shorter. A seed
// almost always gives the same history. What is left to chance is what the Go runtime decides:
// the order of maps and of goroutines that are ready at the same nanosecond.
package simulation
