package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// Observed is what a decision is based on.
type Observed struct {
	Now    time.Time
	Node   *corev1.Node
	BootID string // of the running system
	// Sentinel is whether the sentinel file requests a reboot.
	Sentinel bool
	// Drained is whether this process has drained the node for the work that the present
	// record describes. No annotation says so, because others can write annotations.
	Drained bool
	// Unable is whether the agent cannot reboot its host. If so, it requests nothing,
	// begins nothing, and gives up what it has begun or may begin. But it finishes work
	// after which the node was rebooted.
	Unable bool
	Limits Limits
}

// Limits say how long things may take.
type Limits struct {
	Drain      time.Duration // from the beginning of the work, or from a reboot that failed, to giving up
	Reboot     time.Duration // from the reboot command to the next attempt
	RetryAfter time.Duration // from giving up, or from a reboot that did not remove the sentinel file, to the next request
}

// Step is what the agent does next.
type Step string

// The steps of a reboot, in order. Each step except Drain begins with one write to the
// Node. If the node cannot be drained, Undo and GiveUp replace Reboot and Finish.
const (
	Rest    Step = "Rest"    // do nothing
	Request Step = "Request" // request a reboot, because the sentinel file does
	Begin   Step = "Begin"   // replace the permission with the record of the work
	Cordon  Step = "Cordon"
	Drain   Step = "Drain"
	Reboot  Step = "Reboot" // record that the reboot command is run, and run it
	Undo    Step = "Undo"   // uncordon, because the node cannot be drained
	GiveUp  Step = "GiveUp" // report that, and then request a reboot at a later time
	Finish  Step = "Finish" // uncordon, and remove the record
)

// Decision is the next step.
type Decision struct {
	Step Step
	// Annotations are the annotations to write; nil removes one.
	Annotations map[string]*string
	// Unschedulable is the cordon to write; nil leaves it as it is.
	Unschedulable *bool
	// WaitsFor says what the work waits for if the step is Rest; empty if there is no work.
	WaitsFor string
	// RequeueAfter is when to decide again even if nothing changes; zero for never.
	RequeueAfter time.Duration
}

// Record is what the agent has to know about its work after a restart: the value of the
// annotation reboot-in-progress.
type Record struct {
	// BootID identifies the boot that should end.
	BootID string `json:"bootID"`
	// WasCordoned is whether someone else had cordoned the node before.
	WasCordoned bool `json:"wasCordoned"`
	// Since is when the work began.
	Since time.Time `json:"since"`
	// Rebooted is when the reboot command was last run.
	Rebooted *time.Time `json:"rebooted,omitempty"`
}

// RecordOf returns the record of the work in progress; nil if there is none.
func RecordOf(node *corev1.Node) (*Record, error) {
	value, ok := node.Annotations[request.InProgress]
	if !ok {
		return nil, nil
	}
	r := &Record{}
	if err := json.Unmarshal([]byte(value), r); err != nil {
		return nil, fmt.Errorf("annotation %s=%q was not written by the agent: %w", request.InProgress, value, err)
	}
	if r.BootID == "" || r.Since.IsZero() {
		return nil, fmt.Errorf("annotation %s=%q was not written by the agent: it lacks the boot ID or the time", request.InProgress, value)
	}
	return r, nil
}

// Decide returns the next step. An error means that someone has to correct the annotations
// of the Node.
//
// It depends on nothing that a restart of the agent forgets, except for Drained: draining
// twice does no harm, but believing someone else that the node is drained could.
//
// A node reboots once for each permission, because one write removes the permission and
// records the present boot ID. While the boot ID is the recorded one, the reboot command
// may be run; after that, never.
func Decide(o Observed) (Decision, error) {
	record, err := RecordOf(o.Node)
	if err == nil && o.BootID == "" {
		err = errors.New("the boot ID is empty")
	}
	if err != nil {
		return Decision{Step: Rest}, err
	}
	_, isGranted := o.Node.Annotations[request.Now]
	switch {
	case record != nil && record.BootID != o.BootID:
		return finish(o, record), nil
	case record != nil:
		return working(o, record), nil
	case isGranted && o.Unable:
		return Decision{Step: GiveUp, Annotations: map[string]*string{request.Now: nil}}, nil
	case isGranted:
		return begin(o), nil
	case o.Sentinel && !request.IsNeeded(o.Node) && !o.Unable:
		return Decision{Step: Request, Annotations: map[string]*string{request.Needed: new(string)}}, nil
	}
	return Decision{Step: Rest}, nil
}

// begin uses up the permission, and with it whatever has requested a reboot by then.
func begin(o Observed) Decision {
	r := Record{BootID: o.BootID, WasCordoned: o.Node.Spec.Unschedulable, Since: o.Now.UTC().Truncate(time.Second)}
	return Decision{Step: Begin, Annotations: map[string]*string{request.Needed: nil, request.Now: nil, request.InProgress: r.encode()}}
}

// working returns the next step up to the reboot command, and gives up after too long.
//
// After the command it waits for the system to go down. If that takes too long, either the
// agent was killed right before it could run the command, or the command failed. Then
// everything begins again, because the node may have been uncordoned in the meantime.
func working(o Observed, r *Record) Decision {
	began := r.Since
	if r.Rebooted != nil {
		began = r.Rebooted.Add(o.Limits.Reboot)
		if left := began.Sub(o.Now); left > 0 {
			return Decision{Step: Rest, WaitsFor: "the system to go down", RequeueAfter: left}
		}
	}
	isOurs := o.Node.Spec.Unschedulable && !r.WasCordoned
	left := began.Add(o.Limits.Drain).Sub(o.Now)
	if o.Unable {
		left = 0
	}
	switch {
	case left <= 0 && isOurs:
		return Decision{Step: Undo, Unschedulable: new(bool)}
	case left <= 0 && o.Unable:
		return Decision{Step: GiveUp, Annotations: map[string]*string{request.InProgress: nil}}
	case left <= 0:
		return Decision{Step: GiveUp, Annotations: map[string]*string{request.InProgress: nil, request.Needed: later(o)}}
	case !o.Node.Spec.Unschedulable:
		yes := true
		return Decision{Step: Cordon, Unschedulable: &yes}
	case !o.Drained:
		return Decision{Step: Drain, RequeueAfter: left}
	}
	return reboot(o, r)
}

// reboot records that the command is run before it is run, so that nobody who reads the
// record runs it a second time.
func reboot(o Observed, r *Record) Decision {
	next, now := *r, o.Now.UTC().Truncate(time.Second)
	next.Rebooted = &now
	return Decision{Step: Reboot, Annotations: map[string]*string{request.InProgress: next.encode()}}
}

// finish returns the step after the reboot, once the node is Ready. That counts only when
// the kubelet of the new boot has said so: until then, the Node may show what the old one
// said. If the sentinel file still exists, the next reboot is requested for later, because
// that may go on forever.
func finish(o Observed, r *Record) Decision {
	if !request.IsReady(o.Node) || o.Node.Status.NodeInfo.BootID == r.BootID {
		return Decision{Step: Rest, WaitsFor: "the node to become Ready"}
	}
	d := Decision{Step: Finish, Annotations: map[string]*string{request.InProgress: nil}}
	if o.Node.Spec.Unschedulable && !r.WasCordoned {
		d.Unschedulable = new(bool)
	}
	if o.Sentinel && !request.IsNeeded(o.Node) && !o.Unable {
		d.Annotations[request.Needed] = later(o)
	}
	return d
}

// later returns the time for which to request the next reboot.
func later(o Observed) *string {
	at := o.Now.Add(o.Limits.RetryAfter).UTC().Format(time.RFC3339)
	return &at
}

// encode returns the value of the annotation.
func (r Record) encode() *string {
	value, err := json.Marshal(r)
	if err != nil {
		panic(err) // times of four digits and strings can always be encoded
	}
	encoded := string(value)
	return &encoded
}
