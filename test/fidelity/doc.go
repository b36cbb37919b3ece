// Package fidelity compares the model of the API server in pkg/kittest/apiserver with a
// real one. Its test sends the same random requests to both, and compares each response and,
// at the end of each sequence, what watches deliver. 5,000 requests are a part of
// `make test-e2e`; `make fidelity` sends 100,000.
//
// UIDs and resource versions have to correspond one to one, and the versions have to be in the
// same order. The version of a list has its place in that order, between the writes before and
// after it. Everything else has to be equal, times included. So the test does not start a request
// shortly before a second ends. Of a request that takes longer than that, only the code of the
// response is compared; then the sequence is given up, and counted. Of an error, the code, the
// reason, and the reasons and fields of its causes are compared. The managedFields are compared of
// Deployments and StatefulSets; of other kinds, the model does not have them.
//
// What other programs write goes to the API server only: new Pods, Nodes and Icecreams,
// statuses of built-in kinds, specs of Icecreams. The model then gets the stored object.
//
// Another test makes a real API server refuse a write in each way in testdata/causes.yaml, and compares
// what it answers with the table that package response is tested with.
//
// Not generated, because the model does not cover it: server-side apply of other kinds, JSON patches of
// other kinds than Secrets, dry runs of changes, chunks of lists, other changes of Pods than of their metadata,
// invalid specs beyond replicas, selectors, strategies and containers, generated names, finalizers of
// Namespaces, a version as a precondition of another deletion of what waits for the garbage collector,
// and all subresources but the status of Icecreams.
package fidelity
