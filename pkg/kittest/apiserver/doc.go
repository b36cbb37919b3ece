// Package apiserver is a model of the Kubernetes API server as a pure function: from what
// is stored, the time and a request, it computes what is stored afterwards and the
// response. There is no clock, no randomness and no goroutine in it, so a test can keep
// any state and come back to it.
//
// [Server.Answer] covers what controllers rely on: optimistic concurrency, preconditions,
// server-side apply and managedFields, generations, the status subresource, defaults,
// finalizers, graceful deletion, and the reasons, messages and details of errors. The
// model follows the order of the checks in k8s.io/apiserver, version 1.36, and uses its
// libraries where they are pure. A test that sends random requests to the model and to a
// real API server compares both.
//
// It does not authenticate or authorize, and knows no admission webhooks or policies, no
// dry run, no chunks of lists, no eviction or binding, and no watches: [Events] says what a
// watch delivers. Of the spec of a Pod, it validates only the names and images of containers.
package apiserver
