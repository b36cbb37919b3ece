package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/ledger"
)

// The metadata of a copy. The label makes a Secret a copy: a Secret without it is someone
// else's.
const (
	LabelSourceNamespace = domain + Name + "-source-namespace"
	AnnotationSourceName = domain + Name + "-source-name"
	// AnnotationMadeFor is the namespace that the copy was made for. In another one, it is
	// somebody's copy of a copy.
	AnnotationMadeFor = domain + Name + "-made-for"
	// AnnotationSourceNamespaceUID is the UID of the source namespace.
	AnnotationSourceNamespaceUID = domain + Name + "-source-namespace-uid"
)

const (
	// retryNoNamespace is how long to wait for the cache to show the source namespace, which
	// must exist because there is a source.
	retryNoNamespace = time.Second
	// grace is how long a source must be gone before its copies go: many tools change a Secret
	// by deleting it and creating another one.
	grace = time.Minute
)

// Observed is everything that a decision about one name in one namespace depends on.
type Observed struct {
	Config
	SourceNS  *corev1.Namespace // the source namespace; nil if there is none
	TargetNS  *corev1.Namespace // the namespace of the copy; nil if there is none
	Source    *corev1.Secret    // the Secret of that name in the source namespace; nil if there is none
	Copy      *corev1.Secret    // the labeled Secret in the target namespace, as StripCopy leaves it; nil if there is none
	GoneFor   time.Duration     // for how long this process has known that the source is gone
	Brake     string            // why deletions are held since this process has started; empty if this one is not
	Confirmed Hold              // what somebody has confirmed the deletion in spite of
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
	Why          string        // for Replace, what cannot be changed in place; for Delete, why there should be none
	Ask          ledger.Ask    // what there should be in the end, and what is left to do; without a goal if nobody knows
	Hold         Hold          // what holds the deletion, if something does
	Problem      Problem       // what is wrong although nothing was refused
	RequeueAfter time.Duration // when to decide again even if nothing changes; zero for never
}

// isWrite reports whether the decision leads to a write.
func (d Decision) isWrite() bool {
	return d.Action == Create || d.Action == Update || d.Action == Replace || d.Action == Delete
}

// Problem is why a copy is not as it should be. The zero Problem means that nothing is
// wrong.
type Problem struct{ Reason, Message string }

// wish is what the annotations say about a copy.
type wish int

const (
	wanted wish = iota
	frozen      // nobody knows
	unwanted
)

// Why a copy is unwanted.
const (
	whyGone     = "its source is gone"
	whyNo       = "its source says that it should not be copied"
	whyNarrowed = "its source is no longer meant for the namespace"
	whyUnmarked = "the namespace is no longer marked"
)

// wish returns what the annotations say about the copy and, if it is unwanted, why.
func (o Observed) wish() (_ wish, whyNot string) {
	target := o.answerOf(o.TargetNS)
	switch {
	case target == silent || target == no:
		return unwanted, whyUnmarked
	case target == unclear && (o.Source == nil || o.answerOf(o.Source) != no):
		return frozen, ""
	case o.Source == nil || o.Source.DeletionTimestamp != nil:
		return unwanted, whyGone
	case o.answerOf(o.Source) == no:
		return unwanted, whyNo
	case o.answerOf(o.Source) == silent || o.whyUnclear(o.Source) != "":
		return frozen, ""
	}
	restriction, err := o.restrictionOf(o.Source)
	switch {
	case err != nil: // whyUnclear has said so
		return frozen, ""
	case !restriction.allows(o.TargetNS):
		return unwanted, whyNarrowed
	}
	return wanted, ""
}

// IsWanted reports whether there should be a copy.
func (o Observed) IsWanted() bool {
	if isGone(o.TargetNS) || o.isReserved(o.TargetNS.Name) {
		return false
	}
	is, _ := o.wish()
	return is == wanted
}

// isGone reports whether a namespace does not exist or is being deleted.
func isGone(namespace *corev1.Namespace) bool {
	return namespace == nil || namespace.DeletionTimestamp != nil
}

// Decide returns what to do so that there is a copy if there should be one, equal to its
// source in type and data, and immutable if the source is. It knows nothing of earlier writes.
func Decide(o Observed) Decision {
	if isGone(o.TargetNS) || o.isReserved(o.TargetNS.Name) {
		return Decision{Action: None} // a namespace that is deleted takes its Secrets with it
	}
	wish, whyNot := o.wish()
	switch {
	case wish == wanted && o.SourceNS == nil:
		return Decision{Action: Later, RequeueAfter: retryNoNamespace}
	case wish == wanted && o.Copy == nil:
		return Decision{Action: Create, Ask: ledger.Ask{Goal: o.goal(), Left: missing}}
	case o.Copy == nil:
		return Decision{Action: None, Ask: ledger.Ask{Goal: goalGone}}
	case wish == wanted && !o.isCopy(o.Copy):
		return Decision{Action: Blocked, Problem: Problem{ReasonNameTaken, o.whatItIs()}}
	case wish == wanted:
		return o.keep()
	case wish == frozen:
		return o.freeze()
	case !o.isMade(o.Copy):
		return Decision{Action: Blocked, Problem: Problem{ReasonNotMade, o.whatItIs()}}
	case o.Copy.DeletionTimestamp != nil:
		return o.waitForFinalizers("it should be gone")
	}
	if hold, why := o.whyHeld(whyNot); hold != "" {
		return Decision{Action: Blocked, Hold: hold, Problem: Problem{ReasonHeld, why}}
	}
	if left := grace - o.GoneFor; whyNot == whyGone && left > 0 {
		return Decision{Action: Later, RequeueAfter: left}
	}
	return Decision{Action: Delete, Why: whyNot, Ask: ledger.Ask{Goal: goalGone, Left: "there"}}
}

// keep returns what to do about a copy that exists and should.
func (o Observed) keep() Decision {
	d := Decision{Action: None, Ask: ledger.Ask{Goal: o.goal(), Left: o.left(o.Copy)}}
	why := o.whyReplace()
	switch {
	case d.Ask.Left == "", o.SourceNS == nil:
	case o.Copy.DeletionTimestamp != nil:
		return o.waitForFinalizers("it differs from its source")
	case why != "":
		d.Action, d.Why = Replace, why
	default:
		d.Action = Update
	}
	return d
}

// freeze returns the decision about a copy whose source or namespace does not say clearly whether it
// should be there. If the source says nothing at all, that is told here: most Secrets without a mark
// are none of our business.
func (o Observed) freeze() Decision {
	if o.Source == nil || o.answerOf(o.Source) != silent || !o.isMade(o.Copy) {
		return Decision{Action: None}
	}
	return Decision{Action: Blocked, Problem: Problem{ReasonMarkMissing, fmt.Sprintf(
		"Its copies are neither changed nor deleted, because the Secret has lost its annotation %s. If it was restricted by %s or %s, "+
			`set both again in one command: without a restriction, all marked namespaces get it. Or set it to "false" to delete the copies`,
		o.Annotation, AnnotationNamespaces, AnnotationNamespaceSelector)}}
}

// waitForFinalizers returns the decision about a copy that is being deleted and that must
// not stay as it is.
func (o Observed) waitForFinalizers(wrong string) Decision {
	var finalizers []string
	for _, name := range o.Copy.Finalizers {
		finalizers = append(finalizers, strconv.Quote(name))
	}
	return Decision{Action: Blocked, Problem: Problem{ReasonTerminating, fmt.Sprintf("the copy is stuck in deletion (finalizers: %s), and %s", strings.Join(finalizers, ", "), wrong)}}
}

// taken says that a Secret of the copy's name is in the way.
const taken = "a Secret of that name already exists and is not managed by secretsync"

// whatItIs says what a Secret with the label of copies is that is no copy here, and what to do.
func (o Observed) whatItIs() string {
	name, namespace := o.Copy.Annotations[AnnotationSourceName], o.Copy.Annotations[AnnotationMadeFor]
	switch {
	case namespace != "" && namespace != o.Copy.Namespace:
		return fmt.Sprintf("the Secret is a copy that was created for namespace %q, as after a backup is restored under another name; ignoring it. "+
			"To have a copy made, if one is asked for: kubectl delete secret %s --namespace %s", namespace, o.Copy.Name, o.Copy.Namespace)
	case name != "" && name != o.Copy.Name:
		return fmt.Sprintf("the Secret was copied from the copy of %q, and not by secretsync; ignoring it. Remove its label %s, or delete the Secret", name, LabelSourceNamespace)
	}
	return fmt.Sprintf("the Secret has the label %s of a copy, but secretsync did not create it; ignoring it. Remove the label, or delete the Secret", LabelSourceNamespace)
}

// whyReplace returns what of the copy differs from its source and cannot be changed in
// place; empty if nothing does. Immutability alone is no reason.
func (o Observed) whyReplace() string {
	switch {
	case o.Copy.Type != o.Source.Type:
		return "its type has changed"
	case isImmutable(o.Copy) && !bytes.Equal(digestOf(o.Copy), digestOf(o.Source)):
		return "it is immutable"
	}
	return ""
}

// isCopy reports whether a Secret is a copy of the source of its name, or may become one: it has
// the label, and was not made for another name or namespace.
func (c Config) isCopy(secret *corev1.Secret) bool {
	name, isNamed := secret.Annotations[AnnotationSourceName]
	namespace, isPlaced := secret.Annotations[AnnotationMadeFor]
	return secret.Labels[LabelSourceNamespace] == c.SourceNamespace && (!isNamed || name == secret.Name) && (!isPlaced || namespace == secret.Namespace)
}

// isMade reports whether secretsync has made or adopted a Secret as the copy that it is.
func (c Config) isMade(secret *corev1.Secret) bool {
	return c.isCopy(secret) && secret.Annotations[AnnotationSourceName] == secret.Name && secret.Annotations[AnnotationMadeFor] == secret.Namespace
}

// metadata returns the labels and annotations of the copy that are secretsync's. Of the source's
// metadata only the name is copied.
func (o Observed) metadata() (labels, annotations map[string]string) {
	return map[string]string{LabelSourceNamespace: o.SourceNamespace}, map[string]string{
		AnnotationSourceName:         o.Source.Name,
		AnnotationMadeFor:            o.TargetNS.Name,
		AnnotationSourceNamespaceUID: string(o.SourceNS.UID),
	}
}

// want returns the copy as it is created. It shares the data of the source.
func (o Observed) want() *corev1.Secret {
	labels, annotations := o.metadata()
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.TargetNS.Name, Name: o.Source.Name, Labels: labels, Annotations: annotations},
		Type:       o.Source.Type,
		Data:       o.Source.Data,
		Immutable:  o.Source.Immutable,
	}
}

// patch returns a strategic merge patch that makes the copy as it should be, and leaves what others
// have added to its metadata. If the data differs, all of it is replaced. It applies only to the
// copy that was observed.
func (o Observed) patch() ([]byte, error) {
	labels, annotations := o.metadata()
	body := map[string]any{
		"metadata": map[string]any{"uid": o.Copy.UID, "resourceVersion": o.Copy.ResourceVersion, "labels": labels, "annotations": annotations},
	}
	if !bytes.Equal(digestOf(o.Copy), digestOf(o.Source)) {
		data := map[string]any{}
		for key, value := range o.Source.Data {
			data[key] = value
		}
		if !bytes.Equal(digestOf(o.Copy), digestOf(&corev1.Secret{})) { // Without data there, the directive would drop ours.
			data["$patch"] = "replace"
		}
		body["data"] = data
	}
	if isImmutable(o.Source) {
		body["immutable"] = true
	}
	return json.Marshal(body)
}

// goalGone is the goal that there is no copy, and missing is what is left if there should be one.
const goalGone, missing = "gone", "missing"

// goal identifies what the copy should contain.
func (o Observed) goal() string {
	return fmt.Sprintf("%x %s %t", digestOf(o.Source), o.Source.Type, isImmutable(o.Source))
}

// left identifies how a Secret differs from the copy as it should be; it is empty if it does not.
// The informer does not show a Secret without the label.
func (o Observed) left(secret *corev1.Secret) string {
	if secret.Labels[LabelSourceNamespace] != o.SourceNamespace {
		return missing
	}
	if o.SourceNS != nil && len(o.differences(secret)) == 0 {
		return ""
	}
	return fmt.Sprintf("%x %s %t %q %q %q", digestOf(secret), secret.Type, isImmutable(secret),
		secret.Annotations[AnnotationSourceName], secret.Annotations[AnnotationMadeFor], secret.Annotations[AnnotationSourceNamespaceUID])
}

// differences names the parts of a Secret that are not as those of the copy should be.
func (o Observed) differences(secret *corev1.Secret) (parts []string) {
	labels, annotations := o.metadata()
	for _, part := range []struct {
		name   string
		isSame bool
	}{
		{"type", secret.Type == o.Source.Type},
		{"data", bytes.Equal(digestOf(secret), digestOf(o.Source))},
		{"immutability", isImmutable(secret) || !isImmutable(o.Source)},
		{"labels", hasAll(secret.Labels, labels)},
		{"annotations", hasAll(secret.Annotations, annotations)},
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

func isImmutable(secret *corev1.Secret) bool { return ptr.Deref(secret.Immutable, false) }
