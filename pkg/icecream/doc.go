// Package icecream decides what should exist for an Icecream and what to report about it. It
// is pure: no client, no clock, no log. Read its files in this order:
//
//   - decide.go: what to write. Decide turns an Observed, everything that is known, into a
//     Plan. Observed.With adds the outcome of the plan.
//   - status.go: what to report, as a status and as events.
//   - deployment.go: which fields of the Deployment are the Icecream's.
//   - problems.go: what keeps an Icecream from becoming Ready.
//   - attempt.go: what is remembered from sync to sync.
//   - labels.go: the labels and annotations of Deployments and Pods.
//   - cache.go: which fields of each object the caches keep.
//
// Four properties are tested for arbitrary input: nothing here panics, nothing changes its
// input, the same input gives the same output, and carrying out plans reaches a state with
// nothing left to do.
//
// An Icecream has the Deployments whose controller reference carries its UID, and the Pods in
// its namespace that carry the labels of such a Deployment. Anyone who can write in the
// namespace is trusted not to forge those labels.
package icecream
