// Package agent reboots the node that it runs on, once for each permission of the
// controller (package nodereboot), and leaves the node as it was.
//
// It writes three annotations (package request) and the cordon of its own Node, evictions
// of the Pods there, events, and a Lease that says that it runs. It never writes to
// another Node, never deletes a Pod, never removes a cordon that is not its own, and never
// grants itself a reboot.
//
// Everything that it has to remember is on the Node, so it may be killed at any moment.
// decide.go says what comes next; it is pure. The README of package nodereboot has a
// diagram.
package agent
