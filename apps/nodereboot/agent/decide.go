package agent

import (
	"cmp"
	"fmt"
	"time"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
)

// Observed is what a decision is based on.
type Observed struct {
	Now    time.Time
	Node   request.Node
	BootID string // of the running system; empty if it cannot be read
	// Sentinel is when the sentinel file was last modified; zero if there is none.
	Sentinel time.Time
	// IsBlind says that the agent does not know whether there is a sentinel file.
	IsBlind bool
	// Unable is why the agent cannot reboot its host, or cannot tell whether it should; empty if it can.
	Unable string
	// Blocked is why the node cannot be drained, by its Pods: empty if it may be possible; nil if nobody
	// has looked at them for this decision.
	Blocked *string
	// Drain is how far this process has come with the drain. No annotation says so: draining twice does
	// no harm, but trusting someone else that the node is drained could.
	Drain Drained
	// Outcome is how the reboot command has ended; empty if this process does not know.
	Outcome string
	Limits  Limits
}

// Drained is how far a drain has come.
type Drained struct {
	IsDone bool
	// Obstacle is what it waits for.
	Obstacle string
	// LeavesBy is when it will be done if all that is left are Pods that are ending, or volumes; zero
	// otherwise.
	LeavesBy time.Time
}

// Limits say how long things may take.
type Limits struct {
	Drain      time.Duration // from the beginning of the work to giving up
	Reboot     time.Duration // from the reboot command to giving up
	RetryAfter time.Duration // from giving up to the next attempt; it doubles each time, up to a day
}

// MaxRetryAfter is the longest time that a node waits after a failed attempt.
const MaxRetryAfter = 24 * time.Hour

// recordFor is how long after the latest end of a drain the agent still tries to record the reboot command. It does not
// run the command before that.
const recordFor = 10 * time.Minute

// Step is what the agent does next.
type Step string

// The steps. All except Rest, Look and Drain begin with one write to the Node.
const (
	Rest   Step = "Rest"   // do nothing
	Report Step = "Report" // bring the record up to date
	Look   Step = "Look"   // look at the Pods of the node, and decide again
	Answer Step = "Answer" // say whether the node could be drained for a grant
	Begin  Step = "Begin"  // record the work, and cordon
	Drain  Step = "Drain"
	Reboot Step = "Reboot" // record that the reboot command is run, and run it
	Disown Step = "Disown" // note that someone has removed the agent's cordon
	GiveUp Step = "GiveUp" // end the work without a reboot, and uncordon
	Finish Step = "Finish" // end the work after the reboot, and uncordon
)

// Decision is the next step.
type Decision struct {
	Step Step
	// Record is what the record becomes; nil if it stays as it is.
	Record *request.Record
	// UsesRequest is whether the annotation reboot-needed is removed.
	UsesRequest bool
	// Unschedulable is the cordon to write; nil leaves it as it is.
	Unschedulable *bool
	// Why says, for people, why the work is given up, or what it waits for.
	Why string
	// RequeueAfter is when to decide again even if nothing changes; zero for never.
	RequeueAfter time.Duration
}

// Decide returns the next step.
//
// It depends on nothing that a restart of the agent forgets, except for Drain. A node reboots once for
// each grant, because the record names the grant for which work has begun, and the boot that should end.
// While that boot lasts, the reboot command may be run, once; after that, never.
func Decide(o Observed) Decision {
	record := o.Node.Record
	switch {
	case record == nil || record.Work == nil:
	case o.BootID == "":
		return Decision{Step: Rest, Why: "the boot ID cannot be read"}
	case record.BootID != o.BootID:
		return finish(o, *record)
	default:
		return working(o, *record)
	}
	next := o.refresh(o.recordOrNew(record))
	if record == nil || *request.Encode(record) != *request.Encode(next) {
		return Decision{Step: Report, Record: &next}
	}
	return o.answer(*record)
}

// recordOrNew returns a copy of the record. An agent that has none knows nothing of a grant that is there
// already, and leaves it alone.
func (o Observed) recordOrNew(record *request.Record) request.Record {
	if record != nil {
		return *record
	}
	r := request.Record{BootID: o.BootID, IsDone: true}
	if o.Node.Grant != nil {
		r.ID = o.Node.Grant.ID
	}
	return r
}

// refresh brings a record up to date with what is observed. After a reboot, it waits until it is known whether there
// is a sentinel file, because an old one must be recognized.
func (o Observed) refresh(r request.Record) request.Record {
	now := o.Now.UTC().Truncate(time.Second)
	r.Unable = o.Unable
	if o.BootID != "" && r.BootID != o.BootID && !o.IsBlind {
		isFirst := r.BootID == "" // it could not be read before
		r.BootID, r.Blocked, r.Failed = o.BootID, "", nil
		switch {
		case isFirst || o.Sentinel.IsZero():
		case o.Sentinel.Equal(r.Sentinel):
			r.Failed = &request.Failure{At: now, Sentinel: o.Sentinel.UTC(), Why: "the sentinel file is still there after the reboot"}
		default: // it may be one that is created in each boot
			r = o.failed(r, "there is another sentinel file after the reboot")
		}
	}
	if !o.IsBlind {
		r.Sentinel = o.Sentinel.UTC()
		if r.Failed != nil && !r.Failed.Sentinel.IsZero() && !r.Failed.Sentinel.Equal(r.Sentinel) {
			r.Failed = nil
		}
	}
	switch isNeeded := o.Node.IsAsked() || !r.Sentinel.IsZero() || r.Failed != nil || r.Unable != ""; {
	case !isNeeded:
		r.Since, r.Blocked, r.Failures, r.NotBefore, r.Why = time.Time{}, "", 0, time.Time{}, ""
	case r.Since.IsZero():
		r.Since = now
	}
	return r
}

// failed returns the record with one more failure. The node waits, twice as long after each in a row.
func (o Observed) failed(r request.Record, why string) request.Record {
	pause := min(o.Limits.RetryAfter<<min(r.Failures, 16), MaxRetryAfter)
	r.Failures++
	r.NotBefore, r.Why = o.Now.Add(pause).UTC().Truncate(time.Second), why
	return r
}

// answer returns what to do about the node's grant, if there is one for this boot and a reboot is still
// requested. It answers even a choice that the controller no longer waits for.
func (o Observed) answer(r request.Record) Decision {
	grant := o.Node.Grant
	if grant == nil || grant.BootID != o.BootID || r.ID >= grant.ID && r.IsDone || r.ID > grant.ID || r.Unable != "" ||
		!o.Node.IsDue(o.Now.Add(request.ClockSkew)) {
		return Decision{Step: Rest}
	}
	isAnswered := r.ID == grant.ID
	isGranted := !grant.IsOver && o.Now.Before(grant.Until.Add(request.ClockSkew)) && !o.isClosed()
	switch {
	case isAnswered && r.Blocked == "" && !isGranted:
		return Decision{Step: Rest}
	case o.Blocked == nil:
		return Decision{Step: Look}
	case !isAnswered || r.Blocked != *o.Blocked:
		r.ID, r.Blocked, r.IsDone = grant.ID, *o.Blocked, false
		return Decision{Step: Answer, Record: &r}
	case r.Blocked != "":
		return Decision{Step: Rest}
	}
	return o.begin(r)
}

// isClosed reports whether the window of the node's grant has closed.
func (o Observed) isClosed() bool {
	grant := o.Node.Grant
	return grant != nil && !grant.Closes.IsZero() && !o.Now.Before(grant.Closes)
}

// begin records the work and cordons the node, unless someone else has.
func (o Observed) begin(r request.Record) Decision {
	r.Work = &request.Work{Since: o.Now.UTC().Truncate(time.Second)}
	r.NotBefore, r.Why = time.Time{}, ""
	d := Decision{Step: Begin, Record: &r}
	if !o.Node.Spec.Unschedulable {
		r.Work.IsCordoned, d.Unschedulable = true, new(true)
	}
	return d
}

// working returns the next step up to the reboot command, and gives up after too long. The
// command is run once: one that has had no effect would have none again.
func working(o Observed, r request.Record) Decision {
	if !r.Work.Commanded.IsZero() {
		return commanded(o, r)
	}
	if !o.IsBlind { // the file may be gone, and with it the request
		r.Sentinel = o.Sentinel.UTC()
		o.Node.Record = &r
	}
	latest := r.Work.Since.Add(o.Limits.Drain)
	if o.Drain.LeavesBy.After(latest) {
		latest = o.Drain.LeavesBy
	}
	obstacle := cmp.Or(o.Drain.Obstacle, "how far the drain came is not known")
	switch {
	case o.Unable != "":
		return giveUp(o, r, "the agent cannot reboot the node: "+o.Unable)
	case !o.Node.IsDue(o.Now.Add(request.ClockSkew)):
		return giveUp(o, r, "nobody requests a reboot for now any more")
	case o.Blocked != nil && *o.Blocked != "":
		return giveUpFor(o, r, *o.Blocked)
	case o.isClosed():
		return giveUpFor(o, r, "the window has closed; "+obstacle)
	case !o.Node.Spec.Unschedulable:
		return giveUpFor(o, r, "somebody has uncordoned the node")
	case o.Drain.IsDone && o.Now.Before(latest.Add(recordFor)):
		return o.reboot(r)
	case !o.Drain.IsDone && (o.Now.Before(latest) || o.Drain.Obstacle == ""): // A new process looks before it gives up.
		return Decision{Step: Drain}
	case o.Drain.IsDone:
		return giveUpFor(o, r, fmt.Sprintf("the node was drained, and the reboot command could not be recorded for %s", recordFor))
	}
	return giveUpFor(o, r, fmt.Sprintf("the node could not be drained within %s: %s", o.Limits.Drain, obstacle))
}

// reboot records that the command is run before it is run, so that nobody who reads the record runs it
// a second time. It satisfies all requests that there are by then.
func (o Observed) reboot(r request.Record) Decision {
	work := *r.Work
	work.Commanded = o.Now.UTC().Truncate(time.Second)
	r.Work, r.Sentinel = &work, o.Sentinel.UTC()
	return Decision{Step: Reboot, Record: &r, UsesRequest: o.Node.IsAsked()}
}

// commanded returns what to do after the reboot command, while the boot ID is the same.
func commanded(o Observed, r request.Record) Decision {
	left := r.Work.Commanded.Add(o.Limits.Reboot).Sub(o.Now)
	switch {
	case r.Work.IsCordoned && !o.Node.Spec.Unschedulable:
		return disown(r)
	case left > 0:
		return Decision{Step: Rest, Why: "the system goes down", RequeueAfter: left}
	}
	why := fmt.Sprintf("the system has not gone down within %s: %s", o.Limits.Reboot, cmp.Or(o.Outcome, "how the reboot command ended is not known"))
	r.Failed = &request.Failure{At: o.Now.UTC().Truncate(time.Second), Sentinel: o.Sentinel.UTC(), Why: why}
	return giveUp(o, r, why)
}

// disown records that the agent's cordon is gone. The next one can be someone else's.
func disown(r request.Record) Decision {
	work := *r.Work
	work.IsCordoned, r.Work = false, &work
	return Decision{Step: Disown, Record: &r}
}

// giveUpFor ends the work without a reboot, until a later attempt.
func giveUpFor(o Observed, r request.Record, why string) Decision {
	return giveUp(o, o.failed(r, why), why)
}

// giveUp ends the work without a reboot.
func giveUp(o Observed, r request.Record, why string) Decision {
	d := end(o, GiveUp, r)
	d.Why = why
	return d
}

// finish ends the work after the reboot, once the node is Ready. That counts only when the kubelet of the
// new boot has said so: until then, the Node can show what the kubelet of the old boot said.
func finish(o Observed, r request.Record) Decision {
	switch {
	case r.Work.IsCordoned && !o.Node.Spec.Unschedulable:
		return disown(r)
	case !o.Node.IsReady() || o.Node.Status.NodeInfo.BootID == r.BootID:
		return Decision{Step: Rest, Why: "the node becomes Ready"}
	}
	r.Finished = o.Now.UTC().Truncate(time.Second)
	return end(o, Finish, r)
}

// end returns the step that ends the work for a grant, and removes the agent's own cordon.
func end(o Observed, step Step, r request.Record) Decision {
	d := Decision{Step: step}
	if r.Work.IsCordoned && o.Node.Spec.Unschedulable {
		d.Unschedulable = new(false)
	}
	r.Work, r.IsDone = nil, true
	next := o.refresh(r)
	d.Record = &next
	return d
}
