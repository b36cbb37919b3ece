// Package icecream decides what should exist for an Icecream and what to report about it. It
// is pure: no client, no clock, no log. Read its files in this order:
//
//   - decide.go: what to write. Decide turns an Observed, which is everything that is known,
//     into a Plan; Observed.With adds what came of the plan.
//   - deployment.go: which fields of the Deployment are the Icecream's.
//   - status.go: what to report, as a status and as events.
//   - problems.go: what keeps an Icecream from becoming Ready, as a list of checks.
//   - attempt.go: what is remembered from sync to sync.
//
// labels.go contains the names that others can rely on, and cache.go says how little of each
// object a cache keeps.
//
// Four properties hold for every input, and are tested as such: nothing here panics, nothing
// changes its input, the same input gives the same output, and carrying out plans reaches a
// state in which there is nothing left to do.
//
// An Icecream has the Deployments whose controller reference carries its UID, and the Pods in
// its namespace that carry the labels of such a Deployment. Anyone who can write in the
// namespace is trusted not to forge those labels.
package icecream
