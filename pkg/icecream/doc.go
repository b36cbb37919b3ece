// Package icecream decides what should exist for an Icecream and what to report about it. It
// is pure: no client, no clock, no log. Read its files in this order:
//
//   - decide.go: what should be written. Decide turns an Observed, everything that is known, into
//     a Plan.
//   - write.go: how to write that, part by part, and what came of it.
//   - status.go: what to report, as a status and as events.
//   - deployment.go: which fields of the Deployment are the Icecream's.
//   - problems.go: what keeps an Icecream from becoming Ready.
//   - podproblem: why a Pod does not become ready.
//   - memory.go: what is remembered from sync to sync, besides the writes.
//   - labels.go: the labels and annotations of Deployments and Pods.
//   - cache.go: which fields of each object the caches keep.
//
// Four properties are tested for arbitrary input: nothing here panics, nothing changes its
// input, the same input gives the same output, and carrying out plans reaches a state with
// nothing left to do.
//
// # Words
//
// An Icecream asks for one Deployment, by a name that never changes. There are three states of it:
//
//   - live: as the cache shows it, even if somebody else owns it. If the Icecream controls it, it
//     is the Icecream's own.
//   - want: as it should be: live, with our fields set.
//   - stored: as the API server returned it after a write.
//
// A write that did not come out as asked for was one of these:
//
//   - refused: the API server did not store it.
//   - altered: an admission policy or a webhook made something else of it.
//   - undone: it was stored, and somebody else changed it back.
//
// A plan is held if nothing is written although the Deployment is not as it should be. A Pod is
// the Icecream's if it has the Icecream's label and its ReplicaSet is named after the Deployment,
// and current if it was made from the spec. An Icecream is complete when nothing is left to do for
// anybody.
package icecream
