// Package kit is the map of the kit: everything that a controller needs and that knows no
// controller. Nothing in the kit imports any other package of this repository, except that
// its tests import pkg/kittest; the linter enforces that.
//
// # Where is what?
//
//   - The loop is [nicoleh.io/k8s-controller/pkg/kit/worker]. Every controller embeds one.
//   - The order in which a process starts and stops is in
//     [nicoleh.io/k8s-controller/pkg/kit/manager], at the top of manager.go. Its example is
//     a complete program with a tiny controller.
//   - The rules, which say what to do about an object, are not in the kit. They are pure
//     functions in a decide.go next to each controller; those of controller.go have a package
//     of their own.
//   - Your controller is a package of its own next to the other ones in pkg, with its rules
//     in a decide.go. Its descriptor goes into the table in main.go. CONTRIBUTING.md has a
//     walk-through.
//   - What you must not import: from the kit, any package outside of the kit; from a
//     controller, another controller; from rules, anything that reaches a client, a clock,
//     or a log. .golangci.yaml has the list.
//
// # Packages
//
// The process:
//
//   - manager: the process around controllers, from its flags to its end
//   - flags: what all commands have in common: flags, environment, logging, version
//   - preflight: waits until the API server lets this process list what it needs
//   - leader: elects a leader, and blocks the writes of a former one
//   - barrier: waits until caches show everything that was stored when a term began
//   - serve: serves probes, and pages for authorized clients, within limits
//   - metrics: the metrics that all controllers have
//   - footprint: takes little of the node while there is little to do
//
// What a controller reads:
//
//   - informer: caches that keep little of each object, and know when they last heard from
//     the API server
//   - compact: makes objects smaller that a cache keeps
//   - lenient: clients that also read custom resources that do not fit their type
//   - typed: typed clients of only the kinds that a program names
//
// When it syncs an object:
//
//   - worker: the loop that takes names from a queue, syncs, and retries
//   - consistency: makes a sync wait until the caches show the last writes for the object
//
// What it writes:
//
//   - children: decides when the objects that an owner needs are written, and when again
//   - apply: compares objects with the fields that a controller owns, and writes these
//   - throttle: decides when the next write may be made, fairly between namespaces
//   - backoff: how long to wait before repeating a write that someone keeps undoing
//   - patch: patches that apply only to an object in the observed state
//   - response: what the API server's response to a failed write means
//   - events: records events without delaying a sync
//   - news: remembers what was last reported, so that it is not reported twice
//   - kstatus: decides what the conditions Ready, Reconciling and Stalled say
//   - podproblem: finds out why a Pod does not become ready
//   - text: makes texts that the API server accepts of longer ones
//
// For tests:
//
//   - flagdoc: keeps a page about flags in agreement with the program
//   - difftest: shows differences in tests, without secrets
package kit
