// Package apiserver is a model of the Kubernetes API server as a pure function: from what
// is stored, the time and a request, it computes what is stored afterwards and the
// response. There is no randomness and no goroutine in it, and no clock but for managedFields,
// so a test can keep any state and come back to it.
//
// [Server.Answer] covers what controllers rely on: optimistic concurrency, preconditions,
// generations, the status of custom resources, defaults, finalizers, graceful deletion, and
// the codes and reasons of errors with their causes. (client-go's fakes check none of this, and envtest does not run
// in virtual time.) The model follows the order of the checks
// in k8s.io/apiserver and uses its libraries where they are pure. A test that sends random
// requests to the model and to a real API server compares both. What the requests of other
// programs make of an object, [Server.Put] stores without knowing the rules.
//
// Deployments and StatefulSets have managedFields, and can be applied; a library of client-go computes both. What
// [Server.Put] changes of their metadata and specs is managed by "others", and their status by nobody.
// The times in managedFields are those of the clock, which in a testing/synctest bubble is the test's.
//
// Other kinds have no managedFields. The API server derives them from what a write changes, so a write
// that changes nothing changes none of them either, and stores no new version here as there. The
// exception is a change that the API server itself undoes, such as one of a field that it owns:
// the writer then becomes a manager of that field, which makes a new version.
//
// There are no server-side apply of other kinds, no authentication and authorization, dry runs of deletions
// and evictions, generated names, chunks of lists, or watches: [Selection.Events] says what a watch delivers.
// Webhooks, policies, quotas and PodDisruptionBudgets are functions of a test ([Options]). The model
// validates metadata and Secrets, and of Deployments and StatefulSets the replicas, the selector, the names
// and images of containers, and what cannot be changed; it sets their defaults. Where it knows that the API
// server would do more, it answers with the code 501.
package apiserver
