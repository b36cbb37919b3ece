// Package icecream decides what should exist for an Icecream and what to report
// about it. It is pure: no client, no clock, no log. Everything it knows comes in
// as an Observed, what it remembers from the time before included; everything it
// wants goes out as a Decision, a status, Events, and the Memory for the next time.
// The order in which these take effect is written down once, in the controller's
// sync.
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
