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
// same if one of its faults is left out, which is how a failure is made shorter.
//
// Most seeds give the same history each time. The Go runtime leaves two things to chance, and
// the program that ships makes both differences itself. The caches of client-go are maps, and
// so are some of the program's own: if more objects are due at once than there are workers, the
// order of a map decides which come first. And if several cases of a select are ready, such as
// a timer and the end of a context, any of them is taken: a process that ends sends one more
// request or does not.
package simulation
