// Package icecream decides what should exist for an Icecream and what to report
// about it. It is pure: no client, no clock, no log. One sync reads its files in this
// order:
//
//   - assess.go: what is known. Observed holds everything that was seen, including what
//     is remembered from the sync before; Assess works out what follows from it.
//   - decide.go: what to write. A Decision lists children to write and to delete, of any
//     kind; an Outcome says what became of each.
//   - children.go: what the only child of an Icecream, its Deployment, looks like.
//   - problems.go: what keeps an Icecream from becoming Ready, as a list of checks.
//   - memory.go: what to remember for the next sync.
//   - status.go: what to report.
//   - events.go: what to record as events.
//
// labels.go has the names that others may rely on, and transform.go says how little of
// each object a cache keeps. The order in which decisions take effect is written down
// once, in the controller's sync.
//
// Four properties hold for every input, and are tested as such: nothing here
// panics, nothing changes its input, the same input gives the same output, and
// carrying out decisions reaches a state in which there is nothing left to
// decide.
//
// What belongs to an Icecream: a Deployment whose controller reference carries
// the Icecream's UID; and the Pods in the Icecream's namespace that carry the
// labels of such a Deployment. Whoever may write in the namespace is trusted
// not to forge those labels.
package icecream
