package secretsync

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Observed is everything that a decision about one name in one namespace depends on.
type Observed struct {
	Config
	Now      time.Time
	SourceNS *corev1.Namespace // the source namespace; nil if there is none
	TargetNS *corev1.Namespace // the namespace of the copy; nil if there is none
	Source   *corev1.Secret    // the Secret of that name in the source namespace; nil if there is none
	Copy     *corev1.Secret    // the labeled Secret in the target namespace, as StripCopy leaves it; nil if there is none
	Key      []byte            // the key of content hashes; needed if IsWanted
	Memory   Memory
	Brake    string // why the brake holds the copy's deletion; empty if it does not
}

// Action is what to do about a copy.
type Action string

// Create, Update and Delete are one write each; Replace is two.
const (
	None    Action = "none"
	Blocked Action = "blocked" // by something that only someone else can change
	Later   Action = "later"   // because someone keeps reverting the same thing
	Create  Action = "create"
	Update  Action = "update"
	Replace Action = "replace" // delete, then create
	Delete  Action = "delete"
)

// Decision is what to do.
type Decision struct {
	Action       Action
	Want         *corev1.Secret // the copy to write, for Create, Update and Replace
	Why          string         // for Replace: what cannot be changed in place
	Goal         string         // identifies what there should be in the end
	IsRetry      bool           // whether the last writes for the goal were altered or reverted
	Problem      Problem        // what is wrong although nothing was refused
	RequeueAfter time.Duration  // when to decide again even if nothing changes; zero for never
}

// goalGone is the goal that there is no copy.
const goalGone = "gone"

// writes reports whether the decision leads to a write.
func (d Decision) writes() bool {
	return d.Action == Create || d.Action == Update || d.Action == Replace || d.Action == Delete
}

// isDestructive reports whether the decision deletes a copy, or holds its deletion.
func (d Decision) isDestructive() bool {
	return d.Action == Delete || d.Action == Replace || d.Problem.Reason == ReasonHeld
}

// IsMarked reports whether the annotation marks an object.
func (c Config) IsMarked(obj metav1.Object) bool {
	value, ok := obj.GetAnnotations()[c.Annotation]
	return ok && isYes(value)
}

// IsSource reports whether a Secret should be copied.
func (c Config) IsSource(secret *corev1.Secret) bool {
	return secret.Namespace == c.SourceNamespace && secret.Name != HashKey &&
		secret.DeletionTimestamp == nil && c.IsMarked(secret)
}

// isSame reports whether two states of a Secret in the source namespace lead to the same
// copies.
func (c Config) isSame(a, b *corev1.Secret) bool {
	return a.UID == b.UID && c.IsSource(a) == c.IsSource(b) && a.Type == b.Type && maps.Equal(c.marks(a), c.marks(b)) &&
		ptr.Equal(a.Immutable, b.Immutable) && maps.EqualFunc(a.Data, b.Data, bytes.Equal)
}

// IsTarget reports whether Secrets should be copied to a namespace.
func (c Config) IsTarget(namespace *corev1.Namespace) bool {
	return !c.isReserved(namespace.Name) && namespace.DeletionTimestamp == nil && c.IsMarked(namespace)
}

// isReserved reports whether copies are never written to a namespace, or deleted from it.
func (c Config) isReserved(namespace string) bool {
	return namespace == metav1.NamespaceSystem || namespace == metav1.NamespacePublic || namespace == c.SourceNamespace
}

// IsWanted reports whether there should be a copy.
func (o Observed) IsWanted() bool {
	return o.TargetNS != nil && o.IsTarget(o.TargetNS) && o.Source != nil && o.IsSource(o.Source) && o.mayReceive(o.Source, o.TargetNS)
}

// Decide returns what to do so that there is a copy if there should be one, equal to its
// source in type, data and immutability. What keeps being altered or reverted is written
// at growing intervals.
func Decide(o Observed) Decision {
	d := o.decide()
	if d.Goal == "" || d.Goal != o.Memory.Goal {
		return d
	}
	wait := o.Memory.wait(o.Now)
	switch {
	case d.writes() && wait > 0:
		return o.postpone(d, wait)
	case d.writes():
		d.IsRetry = o.Memory.isContested()
	case d.Action == None && o.Memory.Altered == "":
		d.Problem, d.RequeueAfter = o.Memory.ongoing(o.Now), wait
	}
	return d
}

// postpone returns the decision to wait that long before doing what d says; zero waits
// until it is the copy's turn. The problem stays what it was.
func (o Observed) postpone(d Decision, wait time.Duration) Decision {
	return Decision{Action: Later, Goal: d.Goal, Problem: cmp.Or(o.Memory.Problem, o.Memory.contention()), RequeueAfter: wait}
}

// decide returns what to do, regardless of what became of former writes.
func (o Observed) decide() Decision {
	switch {
	case isGone(o.TargetNS) || o.isReserved(o.TargetNS.Name):
		return Decision{Action: None} // a namespace that is deleted takes its Secrets with it
	case o.IsWanted():
		return o.keep()
	case o.Copy == nil || !o.isOurs(o.Copy):
		return Decision{Action: None, Goal: goalGone}
	case o.Copy.DeletionTimestamp != nil:
		return o.waitForFinalizers("it should be gone")
	}
	if why := o.whyHeld(); why != "" {
		return Decision{Action: Blocked, Problem: Problem{ReasonHeld, why}}
	}
	return Decision{Action: Delete, Goal: goalGone}
}

// keep returns what to do about a copy that should exist.
func (o Observed) keep() Decision {
	if o.Copy == nil {
		want := o.want(nil)
		return Decision{Action: Create, Want: want, Goal: goalOf(want)}
	}
	if !o.isOurs(o.Copy) {
		return Decision{Action: Blocked, Problem: Problem{ReasonNameTaken, o.whyTaken()}}
	}
	want := o.want(o.Copy)
	isRight := o.isEqual() && o.Copy.Type == o.Source.Type && maps.Equal(want.Labels, o.Copy.Labels) && maps.Equal(want.Annotations, o.Copy.Annotations)
	switch why := o.whyReplace(); {
	case isRight:
		return Decision{Action: None, Goal: goalOf(want)}
	case o.Copy.DeletionTimestamp != nil:
		return o.waitForFinalizers("it differs from its source")
	case why != "":
		return Decision{Action: Replace, Want: o.want(nil), Why: why, Goal: goalOf(want)}
	default:
		return Decision{Action: Update, Want: want, Goal: goalOf(want)}
	}
}

// waitForFinalizers returns the decision about a copy that is being deleted and that must
// not stay as it is.
func (o Observed) waitForFinalizers(wrong string) Decision {
	return Decision{Action: Blocked, Problem: Problem{ReasonTerminating, fmt.Sprintf("the copy is being deleted, but %s hold it, and %s", finalizersOf(o.Copy), wrong)}}
}

func finalizersOf(secret *corev1.Secret) string {
	var names []string
	for _, name := range secret.Finalizers {
		names = append(names, strconv.Quote(name))
	}
	return "finalizers (" + strings.Join(names, ", ") + ")"
}

// whyTaken returns why the Secret that exists under the copy's name is not ours.
func (o Observed) whyTaken() string {
	if o.isCopy(o.Copy) {
		return fmt.Sprintf("a copy of that name already exists and belongs to another instance of secretsync, %q", o.Copy.Annotations[AnnotationInstance])
	}
	return errTaken.Error()
}

// errTaken means that there is a Secret of the copy's name that is not a copy.
var errTaken = errors.New("a Secret of that name already exists and is not managed by secretsync")

// goalOf identifies a copy by what is copied.
func goalOf(want *corev1.Secret) string {
	return want.Annotations[AnnotationContentHash] + " " + want.Annotations[AnnotationSourceUID]
}

// whyReplace returns what of the copy differs from its source and cannot be changed in
// place; empty if nothing does.
func (o Observed) whyReplace() string {
	switch {
	case o.Copy.Type != o.Source.Type:
		return "its type has changed"
	case isImmutable(o.Copy) && !o.isEqual():
		return "it is immutable"
	}
	return ""
}
