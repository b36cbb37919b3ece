// Package request is what is written on a Node that has to be rebooted, and how it
// is read. By it the controller (package nodereboot) and the agent on the node
// (package agent) talk to each other.
//
//	Needed       somebody wants a reboot; people, the agent, or any tool set it
//	Next         it is this node's turn, if the budget allows it once that is known
//	Now          the controller has granted it; the agent may begin
//	InProgress   the agent is at it; what it has to remember is in the value
//
// A request moves from Needed to Now to InProgress and is in two of them at no time:
// each move is one write.
package request

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The annotations of a Node.
const (
	// Needed asks for a reboot. Its value may be a time (RFC 3339) before which the
	// node must not be rebooted; any other value, such as the empty one, means as
	// soon as possible.
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

// IsNeeded tells whether somebody has asked for a reboot that nobody has granted yet.
func IsNeeded(node *corev1.Node) bool { return has(node, Needed) }

// IsNext tells whether it is the node's turn.
func IsNext(node *corev1.Node) bool { return has(node, Next) }

// IsGranted tells whether the node may reboot, or is at it.
func IsGranted(node *corev1.Node) bool { return has(node, Now) || has(node, InProgress) }

// NotBefore is the time before which the node must not be rebooted; zero if there
// is none.
func NotBefore(node *corev1.Node) time.Time {
	at, err := time.Parse(time.RFC3339, node.Annotations[Needed])
	if err != nil {
		return time.Time{}
	}
	return at
}

// IsReady tells whether the node's kubelet says, and is believed, that it is ready:
// a condition that is Unknown, or missing, says no such thing.
func IsReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func has(node *corev1.Node, annotation string) bool {
	_, ok := node.Annotations[annotation]
	return ok
}
