// Package kit holds everything that a controller needs and that knows no controller:
// none of its packages imports anything else of this repository. This is its map, in
// the order in which a change travels.
//
//   - manager: the process around controllers, from its flags to its end.
//   - preflight: waits until the API server serves a resource to this process.
//   - informer: caches that keep little of each object, and know how long ago they last
//     heard from the API server.
//   - lenient: a client for custom resources that reads objects which do not fit their
//     type.
//   - barrier: waits until caches show what there was when a term began.
//   - worker: the loop that takes names from a queue and syncs them.
//   - consistency: makes a sync wait until the caches show what it wrote last.
//   - throttle: decides which write is next, fairly between namespaces.
//   - backoff: says how long to wait before writing again what someone keeps undoing.
//   - events: records events without ever holding up a sync.
//   - leader: elects a leader, and fences off the writes of a former one.
//   - serve: probes and metrics, for authorized clients, within bounds.
//   - metrics: the metrics that all controllers have.
//   - flags: what all commands have in common: flags, environment, logging, version.
//   - difftest: prints differences in tests.
//   - flagdoc: keeps a page about flags in agreement with the program.
package kit
