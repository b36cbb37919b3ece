// Package kit is the map of the kit: what every controller needs and client-go lacks. The kit knows no
// controller: it imports only its own packages and internal ones, and its tests also
// pkg/kittest. The linter enforces that.
//
// # Where to look
//
//   - client-go is the framework: the generated clientset, informers and listers, the work
//     queue, the election and the event recorder. The kit connects them, and adds what they
//     lack.
//   - The order in which a process starts and stops is in
//     [nicoleh.io/k8s-controller/pkg/kit/manager], at the top of manager.go. Its example is a
//     complete program with a tiny controller.
//   - The loop is [nicoleh.io/k8s-controller/pkg/kit/worker]. Every controller embeds one.
//   - The rules, which say what to do about an object, are not in the kit. They are pure
//     functions in a decide.go next to each controller. The rules of controller.go are in
//     pkg/icecream.
//   - Your controller is a program of its own. docs/write-a-controller.md says what belongs to it.
//
// # Packages
//
// The process:
//
//   - manager: the process around controllers, from its flags to its end
//   - preflight: waits until the API server lets this process list what it needs
//   - metrics: the metrics that all controllers have
//
// When it syncs an object:
//
//   - worker: the loop that takes names from a queue, syncs, and retries
//   - consistency: makes a sync wait until the caches show the last writes for the object
//   - lenient: clients that also read custom resources that do not fit their Go type
//   - podproblem: why a Pod is not ready
//
// What it writes:
//
//   - patch: patches and server-side applies that reach only the object that was observed
//   - response: what the API server's response to a failed write means
//   - pace: when a write can be repeated, and a status reported again
//   - kstatus: the conditions Ready, Reconciling and Stalled
//
// What only the process itself needs is internal to the module: the election and its fence, serving, flags.
package kit
