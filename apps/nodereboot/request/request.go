// Package request defines what is written on a Node that needs a reboot, and reads it. The
// controller (nodereboot) and the agent on the node (package agent) communicate
// by these annotations:
//
//	Needed       someone wants a reboot; set by people, the agent, or any tool
//	Since        the agent wants it, and since when
//	Next         the controller has chosen the node: it counts as unavailable from now on
//	Now          the controller has granted the reboot: the agent may begin
//	InProgress   the agent is at work; the value is what it has to remember
//	Failed       the node did not go down although it was told to; the value says when
//	Granted      when the controller last granted a reboot; it stays
//
// While a reboot is asked for, an agent reports that it can carry it out by renewing a Lease
// with the name of its node, in the agent's namespace.
//
// A request with Since beside it is the agent's own, which withdraws it when its reason is
// gone. The requests of people stay.
//
// A request moves from Needed to Now to InProgress, or from Now back to Needed if the agent
// has not begun in time. It is never in two of them: each move is one write.
package request

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/internal/text"
)

// The annotations of a Node.
const (
	// Needed requests a reboot: as soon as possible if its value is empty or means yes (see
	// [text.Answer]), otherwise not before the time (RFC 3339) in its value. If it means no,
	// nothing is requested until someone removes it. With any other value, the node waits until someone corrects it.
	Needed = "controller.nicoleh.io/reboot-needed"
	// Since stands beside a request of the agent, and stays until its reason is gone. Its
	// value is a [Reason].
	Since = "controller.nicoleh.io/reboot-needed-since"
	// Next makes the node count as unavailable before it is. Only the controller reads it.
	// Its value is the time at which it was set, for people.
	Next = "controller.nicoleh.io/reboot-next"
	// Now grants the reboot. Its value is the time (RFC 3339) until which the agent may begin;
	// see [Until].
	Now = "controller.nicoleh.io/reboot-now"
	// Granted is when a reboot was last granted (RFC 3339). It stays, so that turns are
	// fair and grants can be kept apart. Only the controller reads it.
	Granted = "controller.nicoleh.io/reboot-granted"
	// InProgress means that the agent is at work. Its value belongs to the agent.
	InProgress = "controller.nicoleh.io/reboot-in-progress"
	// Failed means that the agent has run the reboot command and the node has not gone down. It stays until the next reboot begins or the node was rebooted. Its
	// value belongs to the agent.
	Failed = "controller.nicoleh.io/reboot-failed"
)

// A grant is good for GrantFor, or until the window closes in which it was made. The clocks
// of the controller and of a node may differ by ClockSkew: a grant is over only that long
// after its end.
const (
	GrantFor  = 10 * time.Minute
	ClockSkew = time.Minute
)

// An agent renews its Lease every ReportEvery while a reboot is asked for. If it has not done so for ReportedWithin, it
// probably does not run.
const (
	ReportEvery    = 30 * time.Second
	ReportedWithin = 2 * time.Minute
)

// IsNeeded reports whether someone has requested a reboot that has not been granted yet.
func IsNeeded(node *corev1.Node) bool {
	isYes, isClear := text.Answer(node.Annotations[Needed])
	return has(node, Needed) && (isYes || !isClear)
}

// IsDeclined reports whether someone has said that the node must not be rebooted.
func IsDeclined(node *corev1.Node) bool {
	isYes, isClear := text.Answer(node.Annotations[Needed])
	return has(node, Needed) && isClear && !isYes
}

// Reason is why an agent requests a reboot: a sentinel file.
type Reason struct {
	// At is since when.
	At time.Time `json:"at"`
	// BootID identifies the boot that should end.
	BootID string `json:"bootID"`
}

// ReasonOf returns the reason that the node's agent has for a reboot; nil if it has none. A
// reason that the agent has not written is about no boot.
func ReasonOf(node *corev1.Node) *Reason {
	value, ok := node.Annotations[Since]
	if !ok {
		return nil
	}
	r := &Reason{}
	if err := json.Unmarshal([]byte(value), r); err != nil {
		return &Reason{}
	}
	return r
}

// IsNext reports whether the controller has chosen the node.
func IsNext(node *corev1.Node) bool { return has(node, Next) }

// IsGranted reports whether the node may reboot, or is rebooting.
func IsGranted(node *corev1.Node) bool { return has(node, Now) || has(node, InProgress) }

// NotBefore returns the time before which the node must not be rebooted; zero if there is
// none. An error means that the request cannot be parsed.
func NotBefore(node *corev1.Node) (time.Time, error) {
	value := node.Annotations[Needed]
	if isYes, _ := text.Answer(value); isYes {
		return time.Time{}, nil
	}
	at, isTime := Time(value)
	if !isTime {
		return time.Time{}, fmt.Errorf("%.60q is neither empty nor yes or no nor a time such as 2006-01-02T15:04:05Z", value)
	}
	return at, nil
}

// Until returns until when the agent may begin the reboot that was granted. It is zero if a
// person has set Now to a value that means yes: such a grant has no end. With any other
// value nothing is granted, and the error says why.
func Until(node *corev1.Node) (time.Time, error) {
	value := node.Annotations[Now]
	if isYes, _ := text.Answer(value); isYes {
		return time.Time{}, nil
	}
	until, isTime := Time(value)
	if !isTime {
		return time.Time{}, fmt.Errorf("%.60q, which is neither empty nor yes nor a time such as 2006-01-02T15:04:05Z", value)
	}
	return until, nil
}

// OverAt returns when a grant is over that was not used until then; zero if never, or if
// there is none.
func OverAt(node *corev1.Node) time.Time {
	until, err := Until(node)
	if !has(node, Now) || err != nil || until.IsZero() {
		return time.Time{}
	}
	return until.Add(ClockSkew)
}

// LastGranted returns when the node was last granted a reboot; zero if never, or if that
// is unknown.
func LastGranted(node *corev1.Node) time.Time {
	at, _ := Time(node.Annotations[Granted])
	return at
}

// IsReady reports whether the node is Ready. A condition that is Unknown or missing means
// that it is not.
func IsReady(node *corev1.Node) bool {
	ready := readiness(node)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// ReadySince returns when the node became Ready, or ceased to be, according to its kubelet;
// zero if the kubelet has never said.
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

// Time returns the time (RFC 3339) in the value of an annotation, and whether it is one.
// Case does not matter.
func Time(value string) (at time.Time, isTime bool) {
	at, err := time.Parse(time.RFC3339, strings.ToUpper(value))
	return at, err == nil
}
