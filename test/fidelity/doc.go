// Package fidelity compares the model of the API server in pkg/kittest/apiserver with a
// real one. Its test sends the same random requests to both, and compares each response and,
// at the end of each sequence, what watches deliver. 5,000 requests are a part of
// `make test-e2e`; `make fidelity` sends 100,000.
//
// UIDs and resource versions have to correspond one to one, and the versions have to be in the
// same order. The version of a list has its place in that order, between the writes before and
// after it. Everything else has to be equal, times and managedFields included. So the test does
// not start a request shortly before a second ends. Of a request that takes longer than that, only
// the code of the response is compared; then the sequence is given up, and counted.
//
// Not generated, because the model does not cover it: dry runs, chunks of lists, changes of a
// Pod's spec other than images, invalid Pod specs beyond names and images, generated names, more
// than ten field managers of one object, and the subresources scale, finalize, binding and
// eviction.
//
// Where the API server ranges over a map, the order is left to chance. Then each part is
// compared, and that they are the same ones; see order_test.go.
package fidelity
