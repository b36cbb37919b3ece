package children

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/pkg/kit/apply"
	"nicoleh.io/k8s-controller/pkg/kit/text"
)

// Verdict says how a Decision leaves things.
type Verdict int

const (
	// Converged: everything that the controller writes is as it should be, or
	// as near to that as the API server lets it be. (What others make of it, such
	// as a rollout, may still be under way.)
	Converged Verdict = iota
	// Act: there is something to write.
	Act
	// Wait: nothing should be written now, and something is under way.
	Wait
	// Blocked: nothing can be written until somebody acts.
	Blocked
)

// Decision is what should be written for one owner.
type Decision struct {
	Verdict Verdict
	// Reason and Message explain Wait and Blocked. With Act, they say why the
	// same was refused before.
	Reason, Message string

	// Kind is the kind of the objects to write, in words, such as "Deployment".
	Kind string
	// Children are the objects to write, one after the other.
	Children []apply.Child
	// Deletions are the objects to delete after that, of any kind, one after the other.
	// Nothing follows what fails.
	Deletions []apply.Deletion
	// RecheckLive: all this would be wrong for an owner that is being deleted, and
	// the caches may not show that yet; so ask the API server first.
	RecheckLive bool
	// IsRetry: the same was refused before, so others may go first. IsInvalid says that it
	// was refused as invalid.
	IsRetry, IsInvalid bool

	// Match, with Converged, is to be remembered as [Write.Match].
	Match Match

	// RequeueAfter, if not zero, is when to look again even if nothing changes.
	RequeueAfter time.Duration
}

// Outcome is what came of carrying out a Decision.
type Outcome struct {
	// Written are the Decision's Children as the API server stored them, up to the
	// first that it refused.
	Written []metav1.Object
	// Deleted are the UIDs of the Deletions, up to the first that it refused.
	Deleted []types.UID
	// Err is the API server's refusal; nil if everything was done.
	Err error
}

// written returns the child that was written, as the API server stored it; nil if none was.
func (o Outcome) written() metav1.Object {
	if len(o.Written) == 0 {
		return nil
	}
	return o.Written[0]
}

// Postponed returns the decision to wait instead, so that others go first with what was
// refused before.
func (d Decision) Postponed() Decision {
	return Decision{Verdict: refused(d.IsInvalid), Reason: d.Reason, Message: d.Message, RequeueAfter: d.RequeueAfter}
}

// refused returns the verdict for as long as a write that was refused is not to be
// repeated yet.
func refused(isInvalid bool) Verdict {
	if isInvalid {
		return Blocked
	}
	return Wait
}

// want returns a fingerprint of what the decision writes, whichever objects it is
// written to.
func (d Decision) want() string {
	if len(d.Children) > 0 {
		return Fingerprint(d.Children...)
	}
	var uids []types.UID
	for _, old := range d.Deletions {
		uids = append(uids, old.UID)
	}
	return fingerprintOf(uids)
}

// Drift returns what the decision is to repair.
func (d Decision) Drift() (drift []apply.Difference) {
	for _, child := range d.Children {
		drift = append(drift, child.Drift...)
	}
	return drift
}

// Fingerprint returns a short hash of what is wanted of these children.
func Fingerprint(children ...apply.Child) string {
	var wants []metav1.Object
	for _, child := range children {
		wants = append(wants, child.Want)
	}
	return fingerprintOf(wants)
}

// fingerprintOf returns a hash of a value's JSON, to compare it with others of its type.
func fingerprintOf(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("%v", value) // plain structs of known types: never
	}
	return text.Hash(raw)
}
