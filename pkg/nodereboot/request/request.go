// Package request is what is written on a Node that has to be rebooted, and how it
// is read. By it the controller (package nodereboot) and the agent on the node
// (package agent) talk to each other.
//
//	Needed       somebody wants a reboot; people, the agent, or any tool set it
//	Next         it is this node's turn, if the budget allows it once that is known
//	Now          the controller has granted it; the agent may begin
//	InProgress   the agent is at it; what it has to remember is in the value
//	Granted      when the controller last granted one; it stays
//
// That an agent runs it says in a Lease with the name of its node, in its own namespace,
// which it renews.
//
// A request moves from Needed to Now to InProgress and is in two of them at no time:
// each move is one write.
package request

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The annotations of a Node.
const (
	// Needed asks for a reboot: as soon as possible if its value is empty or "true",
	// else not before the time (RFC 3339) that it is. A node with any other value waits
	// until somebody corrects that.
	Needed = "controller.nicoleh.io/reboot-needed"
	// Next has the node count as unavailable before it is. Only the controller reads
	// it. Its value is the time at which it was set, for people.
	Next = "controller.nicoleh.io/reboot-next"
	// Now allows it. Its value is the time at which it was allowed, for people.
	Now = "controller.nicoleh.io/reboot-now"
	// Granted is when a reboot was last allowed (RFC 3339). It stays, so that turns are
	// fair and grants are apart. Only the controller reads it.
	Granted = "controller.nicoleh.io/reboot-granted"
	// InProgress says that the agent is at it. Its value is the agent's.
	InProgress = "controller.nicoleh.io/reboot-in-progress"
)

// An agent renews its Lease every ReportEvery. One that has not for ReportedWithin
// probably does not run.
const (
	ReportEvery    = 30 * time.Second
	ReportedWithin = 2 * time.Minute
)

// IsNeeded tells whether somebody has asked for a reboot that nobody has granted yet.
func IsNeeded(node *corev1.Node) bool { return has(node, Needed) }

// IsNext tells whether it is the node's turn.
func IsNext(node *corev1.Node) bool { return has(node, Next) }

// IsGranted tells whether the node may reboot, or is at it.
func IsGranted(node *corev1.Node) bool { return has(node, Now) || has(node, InProgress) }

// NotBefore is the time before which the node must not be rebooted; zero if there
// is none. An error says that the request cannot be read.
func NotBefore(node *corev1.Node) (time.Time, error) {
	value := node.Annotations[Needed]
	if value == "" || value == "true" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is neither empty nor a time such as 2006-01-02T15:04:05Z", value)
	}
	return at, nil
}

// LastGranted is when the node was last allowed to reboot; zero if that was never, or
// is not known.
func LastGranted(node *corev1.Node) time.Time {
	at, err := time.Parse(time.RFC3339, node.Annotations[Granted])
	if err != nil {
		return time.Time{}
	}
	return at
}

// IsReady tells whether the node's kubelet says, and is believed, that it is ready:
// a condition that is Unknown, or missing, says no such thing.
func IsReady(node *corev1.Node) bool {
	ready := readiness(node)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// ReadySince is when the node's kubelet says that this began, or ended; zero if it has
// never said anything.
func ReadySince(node *corev1.Node) time.Time {
	if ready := readiness(node); ready != nil {
		return ready.LastTransitionTime.Time
	}
	return time.Time{}
}

func readiness(node *corev1.Node) *corev1.NodeCondition {
	for i, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

func has(node *corev1.Node, annotation string) bool {
	_, ok := node.Annotations[annotation]
	return ok
}
