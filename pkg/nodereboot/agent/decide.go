package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// Observed is what there is to know when the next step has to be decided.
type Observed struct {
	Now    time.Time
	Node   *corev1.Node
	BootID string // of the running system
	// Sentinel tells whether something on the node asks for a reboot.
	Sentinel bool
	// Drained tells whether this process has drained the node for the work under way,
	// as it is recorded now. No annotation says so: others can write these.
	Drained bool
	// Unable tells that this agent could not reboot its host. Then it asks for nothing,
	// begins nothing, and gives back what it has begun or may begin; but what ended in a
	// reboot is finished.
	Unable bool
	Limits Limits
}

// Limits say how long things may take.
type Limits struct {
	Drain      time.Duration // from the beginning of the work, or from a reboot in vain, before the node is given back
	Reboot     time.Duration // from the reboot command, before it is run again
	RetryAfter time.Duration // from a drain that was given up, or a reboot in vain, to the next one asked for
}

// Step is what the agent does next.
type Step string

// The steps of a reboot, in their order. Each but Drain begins with one write to
// the Node; Undo and GiveUp come in place of Reboot and Finish, when the node
// cannot be drained.
const (
	Rest    Step = "Rest"    // nothing
	Request Step = "Request" // ask for a reboot, because the sentinel does
	Begin   Step = "Begin"   // turn the permission into the record of the work
	Cordon  Step = "Cordon"
	Drain   Step = "Drain"
	Reboot  Step = "Reboot" // write down that the command is run, and run it
	Undo    Step = "Undo"   // uncordon, because the node could not be drained
	GiveUp  Step = "GiveUp" // tell that, and then ask for a reboot at a later time
	Finish  Step = "Finish" // uncordon, and clear the record
)

// Decision is the next step.
type Decision struct {
	Step Step
	// Annotations are those to write; nil removes one.
	Annotations map[string]*string
	// Unschedulable is what to write there; nil leaves it.
	Unschedulable *bool
	// Wait says what is waited for, if the step is Rest and there is work under way.
	Wait string
	// Again is when to decide again although nothing happens; 0 is never.
	Again time.Duration
}

// Record is what the agent has to know of its work after a restart: the value of
// the annotation reboot-in-progress.
type Record struct {
	// BootID is that of the system that is to be rebooted.
	BootID string `json:"bootID"`
	// WasCordoned tells that somebody else had cordoned the node before.
	WasCordoned bool `json:"wasCordoned"`
	// Since is when the work began.
	Since time.Time `json:"since"`
	// Rebooted is when the reboot command was run, for the last time.
	Rebooted *time.Time `json:"rebooted,omitempty"`
}

// RecordOf reads the record of the work under way; nil if there is none.
func RecordOf(node *corev1.Node) (*Record, error) {
	value, ok := node.Annotations[request.InProgress]
	if !ok {
		return nil, nil
	}
	r := &Record{}
	if err := json.Unmarshal([]byte(value), r); err != nil {
		return nil, fmt.Errorf("annotation %s=%q is not what the agent has written: %w", request.InProgress, value, err)
	}
	if r.BootID == "" || r.Since.IsZero() {
		return nil, fmt.Errorf("annotation %s=%q lacks what the agent has written", request.InProgress, value)
	}
	return r, nil
}

// Decide says what comes next. An error means that somebody has to mend the
// annotations of the Node.
//
// It depends on nothing that a restart of the agent forgets, but for Drained: to
// drain twice does no harm, and to believe somebody else that it is done could. A reboot happens once for each permission because the
// permission goes with the write that has the present boot ID recorded; with that
// ID the command is run, with another one never.
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

// begin is the first write, which uses up the permission, and with it whatever asks
// for a reboot by then.
func begin(o Observed) Decision {
	r := Record{BootID: o.BootID, WasCordoned: o.Node.Spec.Unschedulable, Since: o.Now.UTC().Truncate(time.Second)}
	return Decision{Step: Begin, Annotations: map[string]*string{request.Needed: nil, request.Now: nil, request.InProgress: r.text()}}
}

// working is the work up to the reboot, for as long as it may take.
//
// After the command, while the system is still the old one, it waits. If the system
// does not go down in time, the command was never run, because the agent was killed
// just before, or it was in vain. Then all begins again: the node may have been made
// schedulable meanwhile.
func working(o Observed, r *Record) Decision {
	began := r.Since
	if r.Rebooted != nil {
		began = r.Rebooted.Add(o.Limits.Reboot)
		if left := began.Sub(o.Now); left > 0 {
			return Decision{Step: Rest, Wait: "the system goes down", Again: left}
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
		return Decision{Step: Drain, Again: left}
	}
	return reboot(o, r)
}

// reboot writes down that the command is run before it is: whoever reads that does
// not run it a second time.
func reboot(o Observed, r *Record) Decision {
	again, now := *r, o.Now.UTC().Truncate(time.Second)
	again.Rebooted = &now
	return Decision{Step: Reboot, Annotations: map[string]*string{request.InProgress: again.text()}}
}

// finish comes after the reboot, once the node is Ready again. That counts only if
// the kubelet of the new system has said it: until then the Node may show what the
// old one said. A sentinel that has outlived the reboot asks for the next one with a
// delay: that may go on for ever.
func finish(o Observed, r *Record) Decision {
	if !request.IsReady(o.Node) || o.Node.Status.NodeInfo.BootID == r.BootID {
		return Decision{Step: Rest, Wait: "the node is Ready"}
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

// later is when to ask for the next reboot.
func later(o Observed) *string {
	at := o.Now.Add(o.Limits.RetryAfter).UTC().Format(time.RFC3339)
	return &at
}

func (r Record) text() *string {
	value, err := json.Marshal(r)
	if err != nil {
		panic(err) // times of four digits and strings can always be encoded
	}
	text := string(value)
	return &text
}
