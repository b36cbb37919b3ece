package secretsync

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/backoff"
)

// The metadata of a copy. The label makes a Secret a copy: a Secret without it is someone
// else's.
const (
	LabelSourceNamespace = "controller.nicoleh.io/secretsync-source-namespace"
	AnnotationSourceName = "controller.nicoleh.io/secretsync-source-name"
	AnnotationSourceUID  = "controller.nicoleh.io/secretsync-source-uid"
	// AnnotationInstance names the instance that the copy belongs to, of several with the
	// same source namespace.
	AnnotationInstance = "controller.nicoleh.io/secretsync-instance"
	// AnnotationNamespace is the namespace that the copy was made for. In another one, it is
	// somebody's copy of a copy.
	AnnotationNamespace = "controller.nicoleh.io/secretsync-namespace"
	// AnnotationSourceNamespaceUID is the UID of the source namespace.
	AnnotationSourceNamespaceUID = "controller.nicoleh.io/secretsync-source-namespace-uid"
)

// retryNoNamespace is how long to wait for the cache to show the source namespace, which
// must exist because there is a source.
const retryNoNamespace = time.Second

// Observed is everything that a decision about one name in one namespace depends on.
type Observed struct {
	Config
	Now      time.Time
	SourceNS *corev1.Namespace // the source namespace; nil if there is none
	TargetNS *corev1.Namespace // the namespace of the copy; nil if there is none
	Source   *corev1.Secret    // the Secret of that name in the source namespace; nil if there is none
	Copy     *corev1.Secret    // the labeled Secret in the target namespace, as StripCopy leaves it; nil if there is none
	Memory   Memory
}

// Action is what to do about a copy.
type Action string

// Create, Update and Delete are one write each; Replace is two.
const (
	None    Action = "none"
	Blocked Action = "blocked" // by something that only someone else can change
	Later   Action = "later"   // because a write now would be in vain
	Create  Action = "create"
	Update  Action = "update"
	Replace Action = "replace" // delete, then create
	Delete  Action = "delete"
)

// Decision is what to do.
type Decision struct {
	Action       Action
	Want         *corev1.Secret // the copy to write, for Create, Update and Replace; it shares the data of the source
	Why          string         // for Replace, what cannot be changed in place; for Delete, why there should be none
	Goal         string         // identifies what there should be in the end
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

// Problem is why a copy is not as it should be. The zero Problem means that nothing is
// wrong.
type Problem struct{ Reason, Message string }

// Memory is what a process remembers of a copy from one sync to the next. The zero Memory
// remembers nothing: a process that has just started may repeat a write whose result the
// previous process knew.
type Memory struct {
	Goal       string        // what the last write was for; empty before the first write
	WrittenAt  time.Time     // when the last write was answered
	Writes     int           // how many writes in a row had the same goal
	Altered    string        // the parts that the API server stored differently than requested
	RevertedBy string        // the field manager who reverted the copy last; empty if unknown
	Queued     time.Duration // how much longer the next such write waits, because there are many copies like this

	Problem Problem // the last one, which has been recorded in an event
	Brake   string  // why the copy must not be deleted since this process has started; empty if it may be
}

// IsWanted reports whether there should be a copy.
func (o Observed) IsWanted() bool {
	isWanted, _ := o.wish()
	return isWanted
}

// wish reports whether there should be a copy, and why not. Without a reason, nobody knows:
// an annotation that cannot be parsed may ask for one.
func (o Observed) wish() (isWanted bool, whyNot string) {
	switch {
	case isGone(o.TargetNS) || o.isReserved(o.TargetNS.Name):
		return false, "the namespace cannot have one"
	case o.Source == nil:
		return false, "its source is gone"
	case o.Source.DeletionTimestamp != nil:
		return false, "its source is being deleted"
	}
	isSource, isSourceClear := o.mark(o.Source)
	isTarget, isTargetClear := o.mark(o.TargetNS)
	switch {
	case isSourceClear && !isSource:
		return false, "its source is no longer marked"
	case isTargetClear && !isTarget:
		return false, "the namespace is no longer marked"
	}
	switch restriction, err := o.restrictionOf(o.Source); {
	case errors.Is(err, errNoReceivers):
		return false, "its source does not say which namespaces may have one"
	case err != nil:
		return false, ""
	case !restriction.allows(o.TargetNS):
		return false, "its source is no longer meant for the namespace"
	}
	return isSource && isTarget, ""
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
		return Decision{Action: Later, Goal: d.Goal, Problem: cmp.Or(o.Memory.Problem, o.Memory.contention()), RequeueAfter: wait}
	case d.Action == None && o.Memory.Altered == "":
		d.Problem, d.RequeueAfter = o.Memory.ongoing(o.Now), wait
	}
	return d
}

// decide returns what to do, regardless of what became of earlier writes.
func (o Observed) decide() Decision {
	isWanted, whyNot := o.wish()
	switch {
	case isGone(o.TargetNS) || o.isReserved(o.TargetNS.Name):
		return Decision{Action: None} // a namespace that is deleted takes its Secrets with it
	case isWanted && o.SourceNS == nil:
		return Decision{Action: Later, Problem: o.Memory.Problem, RequeueAfter: retryNoNamespace}
	case isWanted:
		return o.keep()
	case o.Copy == nil || o.isOthers(o.Copy):
		return Decision{Action: None, Goal: goalGone}
	case o.Copy.Annotations[AnnotationNamespace] != o.Copy.Namespace || !o.isOurs(o.Copy):
		return Decision{Action: Blocked, Problem: Problem{ReasonNotMade, notMade}}
	case whyNot == "":
		return Decision{Action: None}
	case o.Copy.DeletionTimestamp != nil:
		return o.waitForFinalizers("it should be gone")
	}
	if why := o.whyHeld(); why != "" {
		return Decision{Action: Blocked, Problem: Problem{ReasonHeld, why}}
	}
	return Decision{Action: Delete, Why: whyNot, Goal: goalGone}
}

// keep returns what to do about a copy that should exist.
func (o Observed) keep() Decision {
	if o.Copy == nil {
		return Decision{Action: Create, Want: o.want(nil), Goal: o.goal()}
	}
	if !o.isOurs(o.Copy) {
		return Decision{Action: Blocked, Problem: Problem{ReasonNameTaken, o.whyTaken()}}
	}
	want := o.want(o.Copy)
	isRight := o.isEqual() && o.Copy.Type == o.Source.Type && hasAll(o.Copy.Labels, want.Labels) && hasAll(o.Copy.Annotations, want.Annotations)
	switch why := o.whyReplace(); {
	case isRight:
		return Decision{Action: None, Goal: o.goal()}
	case o.Copy.DeletionTimestamp != nil:
		return o.waitForFinalizers("it differs from its source")
	case why != "":
		return Decision{Action: Replace, Want: o.want(nil), Why: why, Goal: o.goal()}
	default:
		return Decision{Action: Update, Want: want, Goal: o.goal()}
	}
}

// waitForFinalizers returns the decision about a copy that is being deleted and that must
// not stay as it is.
func (o Observed) waitForFinalizers(wrong string) Decision {
	var finalizers []string
	for _, name := range o.Copy.Finalizers {
		finalizers = append(finalizers, strconv.Quote(name))
	}
	return Decision{Action: Blocked, Problem: Problem{ReasonTerminating, fmt.Sprintf("the copy is being deleted, but finalizers (%s) hold it, and %s", strings.Join(finalizers, ", "), wrong)}}
}

// whyTaken returns why the Secret that exists under the copy's name is not ours.
func (o Observed) whyTaken() string {
	if o.isCopy(o.Copy) {
		return fmt.Sprintf("a copy of that name already exists and belongs to another instance of secretsync, %q", o.Copy.Annotations[AnnotationInstance])
	}
	return errTaken.Error()
}

// notMade says what is wrong with somebody's Secret that looks like a copy.
const notMade = "This Secret has the label " + LabelSourceNamespace + " of a copy, but secretsync has not made it for this namespace, so it is left alone: remove the label, or delete the Secret"

// errTaken means that there is a Secret of the copy's name that is not a copy.
var errTaken = errors.New("a Secret of that name already exists and is not managed by secretsync")

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

// isCopy reports whether a Secret is a copy of the source of its name, whichever instance
// it belongs to. A copy that someone has copied to another name or namespace is not.
func (c Config) isCopy(secret *corev1.Secret) bool {
	name, isNamed := secret.Annotations[AnnotationSourceName]
	namespace, isPlaced := secret.Annotations[AnnotationNamespace] // since v0.1.0
	return secret.Labels[LabelSourceNamespace] == c.SourceNamespace && (!isNamed || name == secret.Name) && (!isPlaced || namespace == secret.Namespace)
}

// isOthers reports whether a Secret is a copy that belongs to another instance.
func (c Config) isOthers(secret *corev1.Secret) bool { return c.isCopy(secret) && !c.isOurs(secret) }

// isOurs reports whether a Secret is a copy that belongs to no other instance.
func (c Config) isOurs(secret *corev1.Secret) bool {
	instance, isSigned := secret.Annotations[AnnotationInstance]
	return c.isCopy(secret) && (!isSigned || instance == c.instance())
}

// want returns the copy as it should be. It keeps what others have added to the metadata
// of the present copy, which may be nil, and that copy's UID and resource version are
// preconditions of the update. Of the source's metadata only the name is copied.
func (o Observed) want(present *corev1.Secret) *corev1.Secret {
	want := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.TargetNS.Name, Name: o.Source.Name},
		Type:       o.Source.Type, Data: o.Source.Data, Immutable: o.Source.Immutable,
	}
	if present != nil {
		want.ObjectMeta = *present.ObjectMeta.DeepCopy()
		want.ManagedFields = nil // the API server keeps them if an update has none
	}
	metav1.SetMetaDataLabel(&want.ObjectMeta, LabelSourceNamespace, o.Source.Namespace)
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationSourceName, o.Source.Name)
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationSourceUID, string(o.Source.UID))
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationInstance, o.instance())
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationNamespace, want.Namespace)
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationSourceNamespaceUID, string(o.SourceNS.UID))
	return want
}

// goal identifies what the copy should contain.
func (o Observed) goal() string {
	return fmt.Sprintf("%x %s %t %s", digestOf(o.Source), o.Source.Type, isImmutable(o.Source), o.Source.UID)
}

// isEqual reports whether the copy has its source's data and immutability.
func (o Observed) isEqual() bool {
	return isImmutable(o.Copy) == isImmutable(o.Source) && bytes.Equal(digestOf(o.Copy), digestOf(o.Source))
}

func isImmutable(secret *corev1.Secret) bool { return ptr.Deref(secret.Immutable, false) }

// alteredIn returns the parts of a copy that the API server has stored differently than
// requested.
func alteredIn(want, stored *corev1.Secret) []string {
	var parts []string
	for _, part := range []struct {
		name   string
		isSame bool
	}{
		{"type", want.Type == stored.Type},
		{"data", bytes.Equal(digestOf(want), digestOf(stored))},
		{"immutability", isImmutable(want) == isImmutable(stored)},
		{"labels", hasAll(stored.Labels, want.Labels)},
		{"annotations", hasAll(stored.Annotations, want.Annotations)},
	} {
		if !part.isSame {
			parts = append(parts, part.name)
		}
	}
	return parts
}

// hasAll reports whether a map has all entries of another.
func hasAll(has, wanted map[string]string) bool {
	for key, value := range wanted {
		if got, ok := has[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// digestField is the field in which a stripped copy holds the digest of its data. No real
// Secret can have a field of that name.
const digestField = "/digest"

// digestOf returns a digest of the data. It never leaves the process.
func digestOf(secret *corev1.Secret) []byte {
	if digest, isStripped := secret.Data[digestField]; isStripped {
		return digest
	}
	data, _ := json.Marshal(secret.Data) // cannot fail, and is sorted by field
	sum := sha256.Sum256(data)
	return sum[:]
}

// StripCopy reduces a copy, in place, to what Decide reads and an update keeps. There are
// many copies, and their data is in the cache of sources already.
func StripCopy(secret *corev1.Secret) {
	secret.ManagedFields = lastWrite(secret.ManagedFields)
	secret.Data = map[string][]byte{digestField: digestOf(secret)}
}

// lastWrite returns the entry of the manager who wrote last, without the fields. Times are
// in seconds, so of two writes in the same second, it is the one that is not secretsync's.
func lastWrite(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var last []metav1.ManagedFieldsEntry
	for _, entry := range entries {
		if len(last) == 0 || last[0].Time.Before(entry.Time) || last[0].Time.Equal(entry.Time) && last[0].Manager == fieldManager {
			last = []metav1.ManagedFieldsEntry{{Manager: entry.Manager, Time: entry.Time}}
		}
	}
	return last
}

// revertedBy returns the field manager who changed the copy last; empty if that is unknown
// or was secretsync.
func (o Observed) revertedBy() string {
	if o.Copy == nil || len(o.Copy.ManagedFields) == 0 || o.Copy.ManagedFields[0].Manager == fieldManager {
		return ""
	}
	return o.Copy.ManagedFields[0].Manager
}

// StripSource reduces a Secret in the source namespace, in place, to what a copy needs,
// and removes the data of a Secret that is not copied. Annotations are removed because
// kubectl apply keeps a second copy of the data in one of them.
func (c Config) StripSource(secret *corev1.Secret) {
	if !c.IsSource(secret) {
		secret.Data = nil
	}
	secret.Labels, secret.Annotations = nil, c.marks(secret)
	secret.ManagedFields, secret.OwnerReferences = nil, nil
}

// StripNamespace reduces a namespace, in place, to what Decide reads.
func (c Config) StripNamespace(namespace *corev1.Namespace) {
	*namespace = corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:              namespace.Name,
		UID:               namespace.UID,
		ResourceVersion:   namespace.ResourceVersion,
		DeletionTimestamp: namespace.DeletionTimestamp,
		Labels:            namespace.Labels,
		Annotations:       c.marks(namespace),
	}}
}

// wait returns how long after now the next write with the same goal is due.
func (m Memory) wait(now time.Time) time.Duration {
	count := m.Writes
	if m.Altered != "" {
		count += backoff.Free - 1 // the first response says already what the next will say
	}
	return max(0, m.WrittenAt.Add(backoff.Delay(count)+m.Queued).Sub(now))
}

// isContested reports whether the next write with the same goal will probably be altered
// or reverted, too.
func (m Memory) isContested() bool { return m.Altered != "" || m.Writes >= backoff.Free }

// ongoing returns the problem that remains although the last write succeeded; the zero
// Problem if there is none. A repair is known to last when it has lasted for as long as
// the pause after it.
func (m Memory) ongoing(now time.Time) Problem {
	if m.Altered != "" || m.Writes > backoff.Free && m.wait(now) > 0 {
		return m.contention()
	}
	return Problem{}
}

// contention returns what keeps the copy from staying as it was written.
func (m Memory) contention() Problem {
	if m.Altered != "" {
		return Problem{ReasonAltered, fmt.Sprintf("an admission policy or webhook changed the copy before it was stored: its %s; secretsync waits longer before each retry", m.Altered)}
	}
	who := "someone"
	if m.RevertedBy != "" {
		who = fmt.Sprintf("%q", m.RevertedBy)
	}
	return Problem{ReasonContested, "the copy keeps being reverted, last by " + who + "; secretsync waits longer before each repair"}
}

// after returns the memory after a decision was carried out on a copy that revertedBy had
// changed, of which the API server stored some parts altered.
func (m Memory) after(d Decision, revertedBy string, altered []string, now time.Time) Memory {
	next := Memory{Goal: d.Goal, WrittenAt: now, Writes: 1, Altered: strings.Join(altered, ", "), Problem: m.Problem}
	if m.Goal == d.Goal && now.Sub(m.WrittenAt) < backoff.ForgetAfter {
		next.Writes += m.Writes
		next.RevertedBy = cmp.Or(revertedBy, m.RevertedBy)
	}
	return next
}

// forgetAfter returns how long after now the memory of a copy that is neither there nor
// wanted can be forgotten.
func (m Memory) forgetAfter(now time.Time) time.Duration {
	return max(0, m.WrittenAt.Add(backoff.ForgetAfter).Sub(now))
}
