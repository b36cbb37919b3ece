// Package request defines what is written on a Node that needs a reboot, and reads it. Each of the
// three annotations has one writer:
//
//	Needed   people and tools: the node needs a reboot, or must not have one
//	Granted  the controller (nodereboot): whether the node may reboot; a [Grant]
//	Agent    the agent of the node (package agent): what it wants, and what it has done; a [Record]
//
// Nothing is moved from one to another. A grant has a number, and the agent acknowledges it: its
// record names the number of the newest grant that it has answered, and whether that is done.
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
	// [text.Answer]), otherwise not before the time (RFC 3339) in its value. If it means no, the node
	// is not rebooted, whatever its agent wants. With any other value, the node waits until someone
	// corrects it. The agent removes it when it reboots the node.
	Needed = "controller.nicoleh.io/reboot-needed"
	// Granted contains the node's current or last grant, a [Grant].
	Granted = "controller.nicoleh.io/reboot-grant"
	// Agent contains what the node's agent says, a [Record].
	Agent = "controller.nicoleh.io/reboot-agent"
)

const (
	// GrantFor is how long the agent has to begin, unless the window closes before.
	GrantFor = 10 * time.Minute
	// ClockSkew is by how much the clocks of the controller and of a node may differ: a grant is over
	// only that long after its end.
	ClockSkew = time.Minute
)

// Grant is the controller's permission to reboot a node.
type Grant struct {
	// ID increases with each grant of the node.
	ID int64 `json:"id"`
	// BootID identifies the boot that may end. In another boot, the grant is void.
	BootID string `json:"bootID"`
	// Chosen is when the controller has chosen the node. It counts as unavailable from then on.
	Chosen time.Time `json:"chosen"`
	// Until is when the permission to begin ends; zero if the node is only chosen.
	Until time.Time `json:"until,omitzero"`
	// Closes is when the window closes, and a drain ends; zero if no window closes.
	Closes time.Time `json:"closes,omitzero"`
	// IsOver is whether the controller has taken back the grant, or the choice.
	IsOver bool `json:"over,omitempty"`
	// Unanswered is how many grants in a row the agent did not answer, or not use, in time.
	Unanswered uint `json:"unanswered,omitempty"`
	// LastGranted is when the node was last granted a reboot, by this grant or an earlier one.
	LastGranted time.Time `json:"lastGranted,omitzero"`
}

// Record is what an agent says about its node.
type Record struct {
	// BootID identifies the boot in which this was written, and the one that should end if there is Work.
	BootID string `json:"bootID"`
	// Since is when the node began to need a reboot, for any reason, or its agent became unable; zero if
	// neither is so.
	Since time.Time `json:"since,omitzero"`
	// Sentinel is when the sentinel file was last modified, which requests a reboot; zero if there is none.
	Sentinel time.Time `json:"sentinel,omitzero"`
	// Unable is why the agent cannot reboot the node, or not find out whether it should; empty if it can.
	Unable string `json:"unable,omitempty"`

	// ID is the number of the newest grant that the agent has answered.
	ID int64 `json:"id,omitempty"`
	// Blocked is why the node cannot be drained for it; empty if it may be possible.
	Blocked string `json:"blocked,omitempty"`
	// IsDone is whether the agent is done with that grant. It never begins work for it again.
	IsDone bool `json:"done,omitempty"`
	// Work is what the agent does for that grant; nil if it has not begun, or is done.
	Work *Work `json:"work,omitempty"`

	// Finished is when the agent last finished a reboot.
	Finished time.Time `json:"finished,omitzero"`
	// Failures is how many times in a row a reboot was not possible, or did not help.
	Failures uint `json:"failures,omitempty"`
	// NotBefore is when the next reboot may be granted after such a failure; Why is what has happened.
	NotBefore time.Time `json:"notBefore,omitzero"`
	Why       string    `json:"why,omitempty"`
	// Failed is set if the last reboot command had no effect: someone has to look into that.
	Failed *Failure `json:"failed,omitempty"`
}

// Work is a reboot that an agent has begun. It can be continued after a restart.
type Work struct {
	// Since is when it began.
	Since time.Time `json:"since"`
	// IsCordoned is whether the node's cordon is the agent's. It is written together with the cordon,
	// and no other cordon is ever removed.
	IsCordoned bool `json:"cordoned,omitempty"`
	// Commanded is when the reboot command was run; zero if it was not.
	Commanded time.Time `json:"commanded,omitzero"`
}

// Failure is a reboot command that had no effect: the node did not go down, or its sentinel file is
// still there.
type Failure struct {
	// At is when the agent found that out.
	At time.Time `json:"at"`
	// Sentinel is when the sentinel file had last been modified; zero if there was none. Until it is
	// modified again, it requests nothing.
	Sentinel time.Time `json:"sentinel,omitzero"`
	// Why is for people.
	Why string `json:"why"`
}

// Wants reports whether the agent requests a reboot, because of the sentinel file.
func (r Record) Wants() bool {
	return !r.Sentinel.IsZero() && (r.Failed == nil || !r.Failed.Sentinel.Equal(r.Sentinel))
}

// Node is a Node with what its annotations say.
type Node struct {
	*corev1.Node
	Grant  *Grant  // nil if it has none that can be decoded
	Record *Record // nil if it has none that can be decoded
}

// Read reads the annotations of a Node.
func Read(node *corev1.Node) Node {
	record := read[Record](node, Agent)
	if record != nil && record.BootID == "" && record.Unable == "" {
		record = nil // no agent has written that
	}
	return Node{node, read[Grant](node, Granted), record}
}

func read[T any](node *corev1.Node, annotation string) *T {
	value := new(T)
	if json.Unmarshal([]byte(node.Annotations[annotation]), value) != nil {
		return nil
	}
	return value
}

// Encode returns a grant or a record as the value of its annotation.
func Encode(of any) *string {
	value, err := json.Marshal(of)
	if err != nil {
		panic(err) // times of four digits and strings can always be encoded
	}
	return new(string(value))
}

// Stage is how far a grant has come.
type Stage int

// The stages of a grant, in order. Except in the first one, the node counts as unavailable.
const (
	NoGrant   Stage = iota // there is none, or it is over or done
	Chosen                 // the node is chosen
	MayReboot              // the agent may begin
	AtWork                 // it has begun, and is not done
)

// Stage returns how far the node's grant has come.
func (n Node) Stage() Stage {
	switch grant, record := n.Grant, n.Record; {
	case record != nil && record.Work != nil:
		return AtWork
	case grant == nil || grant.IsOver || record != nil && (record.BootID != grant.BootID || record.ID >= grant.ID && record.IsDone):
		return NoGrant
	case grant.Until.IsZero():
		return Chosen
	}
	return MayReboot
}

// IsUnused reports whether the node's grant is over, and its agent answered but did not use it in the current boot.
func (n Node) IsUnused() bool {
	grant, record := n.Grant, n.Record
	return grant != nil && grant.IsOver && !grant.Until.IsZero() && record != nil && record.BootID == grant.BootID && record.ID == grant.ID && !record.IsDone
}

// HasAnswered reports whether the node's agent has answered its newest grant, if that is for the current boot.
func (n Node) HasAnswered() bool {
	return n.Grant == nil || n.Record != nil && (n.Record.ID >= n.Grant.ID || n.Record.BootID != n.Grant.BootID)
}

// IsAsked reports whether people or tools request a reboot of the node.
func (n Node) IsAsked() bool {
	_, isThere := n.Annotations[Needed]
	return isThere && !n.IsDeclined()
}

// IsDeclined reports whether someone has said that the node must not be rebooted.
func (n Node) IsDeclined() bool {
	value, isThere := n.Annotations[Needed]
	isYes, isClear := text.Answer(value)
	return isThere && isClear && !isYes
}

// IsNeeded reports whether people or the agent request a reboot of the node, and nobody has declined it.
// A node that is being deleted needs none.
func (n Node) IsNeeded() bool {
	isWanted := n.Record != nil && n.Record.Wants()
	return (n.IsAsked() || isWanted) && !n.IsDeclined() && n.DeletionTimestamp == nil
}

// NotBefore returns the time before which people do not want the node to be rebooted; zero if there is
// none. An error means that their request cannot be read.
func (n Node) NotBefore() (time.Time, error) {
	value := n.Annotations[Needed]
	if _, isClear := text.Answer(value); isClear {
		return time.Time{}, nil
	}
	at, isTime := Time(value)
	if !isTime {
		return time.Time{}, fmt.Errorf("%.60q is neither empty nor yes or no nor a time such as 2006-01-02T15:04:05Z", value)
	}
	return at, nil
}

// IsDue reports whether someone requests a reboot of the node for now.
func (n Node) IsDue(now time.Time) bool {
	at, err := n.NotBefore()
	return n.IsNeeded() && err == nil && !at.After(now)
}

// IsReady reports whether the node is Ready. A condition that is Unknown or missing means
// that it is not.
func (n Node) IsReady() bool {
	ready := n.readiness()
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// ReadySince returns when the node became Ready, or ceased to be, according to its kubelet;
// zero if the kubelet has never said.
func (n Node) ReadySince() time.Time {
	if ready := n.readiness(); ready != nil {
		return ready.LastTransitionTime.Time
	}
	return time.Time{}
}

func (n Node) readiness() *corev1.NodeCondition {
	for i, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// Time returns the time (RFC 3339) in the value of an annotation, and whether it is one.
// Case does not matter.
func Time(value string) (at time.Time, isTime bool) {
	at, err := time.Parse(time.RFC3339, strings.ToUpper(value))
	return at, err == nil
}
