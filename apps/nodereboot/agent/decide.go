package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
)

// Observed is what a decision is based on.
type Observed struct {
	Now    time.Time
	Node   *corev1.Node
	BootID string // of the running system
	// Sentinel is when the sentinel file was last modified; zero if there is none.
	Sentinel time.Time
	// Drained is whether this process has drained the node for the work that the present
	// record describes. No annotation says so, because others can write annotations.
	Drained bool
	// IsDoubtful is whether this process has written the present record before the reboot
	// command, got no answer, and so has not run the command.
	IsDoubtful bool
	// Unable is whether the agent cannot reboot its host. If so, it requests nothing,
	// begins nothing, and gives up what it has begun or may begin. But it finishes work
	// after which the node was rebooted.
	Unable bool
	Limits Limits
}

// Limits say how long things may take.
type Limits struct {
	Drain      time.Duration // from the beginning of the work to giving up
	Reboot     time.Duration // from the reboot command to giving up
	RetryAfter time.Duration // from giving up, or from a reboot that did not remove the sentinel file, to the next request
}

// givenBackFor is how long a node whose grant was over does not ask again. If the node's
// clock is wrong, each grant may seem to be over.
const givenBackFor = time.Minute

// Step is what the agent does next.
type Step string

// The steps of a reboot, in order. Each step except Drain begins with one write to the
// Node. If the node cannot be drained, Undo and GiveUp replace Reboot and Finish.
const (
	Rest     Step = "Rest"     // do nothing
	Request  Step = "Request"  // request a reboot, because the sentinel file does
	Withdraw Step = "Withdraw" // withdraw that request, because its reason is gone
	GiveBack Step = "GiveBack" // replace a permission that is over with the request
	Begin    Step = "Begin"    // replace the permission with the record of the work, and cordon
	Cordon   Step = "Cordon"   // cordon again, because someone has uncordoned the node
	Disown   Step = "Disown"   // note that someone has removed the agent's cordon
	Drain    Step = "Drain"
	Reboot   Step = "Reboot" // record that the reboot command is run, and run it
	Undo     Step = "Undo"   // uncordon, because the node cannot be drained or rebooted
	GiveUp   Step = "GiveUp" // report that, and then request a reboot at a later time, or record the failure
	Finish   Step = "Finish" // uncordon, and remove the record
	Forget   Step = "Forget" // remove the record of a failure, because the node was rebooted since
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
	// Cordoned is whether the cordon is the agent's. It is written together with the cordon,
	// and no other cordon is ever removed.
	Cordoned bool `json:"cordoned,omitempty"`
	// Since is when the work began.
	Since time.Time `json:"since"`
	// Rebooted is when the reboot command was run.
	Rebooted *time.Time `json:"rebooted,omitempty"`
}

// Failure is what the agent has to know about a reboot that failed: the value of the
// annotation reboot-failed. While it is there, the same sentinel file requests nothing.
type Failure struct {
	// BootID identifies the boot that should have ended.
	BootID string `json:"bootID"`
	// At is when the agent gave up, for people.
	At time.Time `json:"at"`
	// Sentinel is when the sentinel file was last modified then; zero if there was none.
	Sentinel time.Time `json:"sentinel,omitzero"`
}

// failureOf returns the failure that the Node remembers; nil if there is none. One that the
// agent has not written is about no boot.
func failureOf(node *corev1.Node) *Failure {
	value, ok := node.Annotations[request.Failed]
	if !ok {
		return nil
	}
	f := &Failure{}
	if err := json.Unmarshal([]byte(value), f); err != nil {
		return &Failure{}
	}
	return f
}

// RecordOf returns the record of the work in progress; nil if there is none.
func RecordOf(node *corev1.Node) (*Record, error) {
	value, ok := node.Annotations[request.InProgress]
	if !ok {
		return nil, nil
	}
	r := &Record{}
	if err := json.Unmarshal([]byte(value), r); err != nil {
		return nil, fmt.Errorf("annotation %s=%.60q was not written by the agent: %w", request.InProgress, value, err)
	}
	if r.BootID == "" || r.Since.IsZero() {
		return nil, fmt.Errorf("annotation %s=%.60q was not written by the agent: it lacks the boot ID or the time", request.InProgress, value)
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
	failure := failureOf(o.Node)
	switch {
	case record != nil && record.Cordoned && !o.Node.Spec.Unschedulable:
		return disown(record), nil
	case record != nil && record.BootID != o.BootID:
		return finish(o, record), nil
	case record != nil:
		return working(o, record), nil
	case isGranted && o.Unable:
		return Decision{Step: GiveUp, Annotations: map[string]*string{request.Now: nil}}, nil
	case isGranted && (!isGood(o) || request.IsDeclined(o.Node)):
		return giveBack(o), nil
	case isGranted && !request.OverAt(o.Node).IsZero() && isReasonGone(o):
		return withdraw(o), nil
	case isGranted:
		return begin(o), nil
	case failure != nil && failure.BootID != o.BootID:
		return Decision{Step: Forget, Annotations: map[string]*string{request.Failed: nil}}, nil
	case isReasonGone(o):
		return withdraw(o), nil
	case failure != nil && o.Sentinel.Equal(failure.Sentinel):
		return Decision{Step: Rest}, nil
	}
	return ask(o), nil
}

// isReasonGone reports whether the agent has had a reason for a reboot and has it no longer:
// the sentinel file is gone, or the node was rebooted since, by whomever.
func isReasonGone(o Observed) bool {
	reason := request.ReasonOf(o.Node)
	return reason != nil && (o.Sentinel.IsZero() || reason.BootID != o.BootID)
}

// withdraw takes back the agent's own request, and the permission that it has led to. A
// sentinel file that the reboot has not removed asks again later.
func withdraw(o Observed) Decision {
	d := Decision{Step: Withdraw, Annotations: map[string]*string{request.Since: nil}}
	if _, isGranted := o.Node.Annotations[request.Now]; isGranted {
		d.Annotations[request.Now] = nil
	}
	if request.IsNeeded(o.Node) {
		d.Annotations[request.Needed] = nil
	}
	if !o.Sentinel.IsZero() && !o.Unable {
		askLater(o, d)
	}
	return d
}

// ask requests a reboot if the sentinel file does. If someone has said that the node must
// not be rebooted, only the reason is recorded. A request of somebody else stays theirs.
func ask(o Observed) Decision {
	hasReason := request.ReasonOf(o.Node) != nil
	if o.Sentinel.IsZero() || o.Unable || request.IsNeeded(o.Node) || request.IsDeclined(o.Node) && hasReason {
		return Decision{Step: Rest}
	}
	d := Decision{Step: Request, Annotations: map[string]*string{}}
	if !request.IsDeclined(o.Node) {
		d.Annotations[request.Needed] = new(string)
	}
	if !hasReason {
		d.Annotations[request.Since] = encode(request.Reason{At: o.Now.UTC().Truncate(time.Second), BootID: o.BootID})
	}
	return d
}

// askLater adds to a decision that the sentinel file asks for another reboot, later than it
// otherwise would, because that may go on forever.
func askLater(o Observed, d Decision) {
	next := request.Reason{At: o.Now.UTC().Truncate(time.Second), BootID: o.BootID}
	if reason := request.ReasonOf(o.Node); reason != nil && !reason.At.IsZero() {
		next.At = reason.At
	}
	d.Annotations[request.Since] = encode(next)
	if !request.IsDeclined(o.Node) {
		d.Annotations[request.Needed] = after(o, o.Limits.RetryAfter)
	}
}

// isGood reports whether the permission is one, and not over yet.
func isGood(o Observed) bool {
	_, err := request.Until(o.Node)
	overAt := request.OverAt(o.Node)
	return err == nil && (overAt.IsZero() || o.Now.Before(overAt))
}

// giveBack makes a permission that is over a request again: the agent may have been stopped,
// or cut off, until long after the window for reboots was closed. A permission that is none
// is removed.
func giveBack(o Observed) Decision {
	d := Decision{Step: GiveBack, Annotations: map[string]*string{request.Now: nil}}
	if _, isAsked := o.Node.Annotations[request.Needed]; !isAsked && !request.OverAt(o.Node).IsZero() {
		d.Annotations[request.Needed] = after(o, givenBackFor)
	}
	return d
}

// begin uses up the permission, and with it whatever has requested a reboot by then.
func begin(o Observed) Decision {
	d := cordon(o, Begin, Record{BootID: o.BootID, Since: o.Now.UTC().Truncate(time.Second)})
	d.Annotations[request.Needed], d.Annotations[request.Now] = nil, nil
	if failureOf(o.Node) != nil {
		d.Annotations[request.Failed] = nil
	}
	return d
}

// cordon returns a step that cordons the node, unless someone else has, and records that.
func cordon(o Observed, step Step, r Record) Decision {
	d := Decision{Step: step}
	if !o.Node.Spec.Unschedulable {
		r.Cordoned, d.Unschedulable = true, new(true)
	}
	d.Annotations = map[string]*string{request.InProgress: encode(r)}
	return d
}

// disown records that the agent's cordon is gone. The next one can be someone else's.
func disown(r *Record) Decision {
	next := *r
	next.Cordoned = false
	return Decision{Step: Disown, Annotations: map[string]*string{request.InProgress: encode(next)}}
}

// working returns the next step up to the reboot command, and gives up after too long. The
// command is run once: one that has had no effect would have none again.
func working(o Observed, r *Record) Decision {
	left := r.Since.Add(o.Limits.Drain).Sub(o.Now)
	if r.Rebooted != nil {
		left = r.Rebooted.Add(o.Limits.Reboot).Sub(o.Now)
		switch {
		case left > 0 && o.IsDoubtful && o.Node.Spec.Unschedulable:
			return reboot(o, r)
		case left > 0:
			return Decision{Step: Rest, WaitsFor: "the system to go down", RequeueAfter: left}
		}
	}
	if o.Unable || request.IsDeclined(o.Node) {
		left = 0
	}
	switch {
	case left <= 0 && r.Cordoned:
		d := disown(r)
		d.Step, d.Unschedulable = Undo, new(false)
		return d
	case left <= 0:
		return giveUp(o, r)
	case !o.Node.Spec.Unschedulable:
		return cordon(o, Cordon, *r)
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
	return Decision{Step: Reboot, Annotations: map[string]*string{request.InProgress: encode(next)}}
}

// giveUp removes the record of the work. It requests another reboot for later if the node
// could not be drained. After a reboot that failed it does not: someone has to look into
// that.
func giveUp(o Observed, r *Record) Decision {
	d := Decision{Step: GiveUp, Annotations: map[string]*string{request.InProgress: nil}}
	switch {
	case o.Unable:
	case r.Rebooted != nil:
		d.Annotations[request.Failed] = encode(Failure{o.BootID, o.Now.UTC().Truncate(time.Second), o.Sentinel.UTC()})
	case request.IsDeclined(o.Node):
	default:
		d.Annotations[request.Needed] = after(o, o.Limits.RetryAfter)
	}
	return d
}

// finish returns the step after the reboot, once the node is Ready. That counts only when
// the kubelet of the new boot has said so: until then, the Node may show what the old one
// said. If the sentinel file still exists, the next reboot is requested for later.
func finish(o Observed, r *Record) Decision {
	if !request.IsReady(o.Node) || o.Node.Status.NodeInfo.BootID == r.BootID {
		return Decision{Step: Rest, WaitsFor: "the node to become Ready"}
	}
	d := Decision{Step: Finish, Annotations: map[string]*string{request.InProgress: nil}}
	if r.Cordoned {
		d.Unschedulable = new(false)
	}
	if request.ReasonOf(o.Node) != nil {
		d.Annotations[request.Since] = nil
	}
	if !o.Sentinel.IsZero() && !request.IsNeeded(o.Node) && !o.Unable {
		askLater(o, d)
	}
	return d
}

// after returns a time from now as the value of an annotation.
func after(o Observed, wait time.Duration) *string {
	at := o.Now.Add(wait).UTC().Format(time.RFC3339)
	return &at
}

// encode returns a record or a failure as the value of an annotation.
func encode(of any) *string {
	value, err := json.Marshal(of)
	if err != nil {
		panic(err) // times of four digits and strings can always be encoded
	}
	encoded := string(value)
	return &encoded
}
