package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/pace"
)

// The metadata of a copy.
const (
	// LabelSourceNamespace makes a Secret a copy: one without it is someone else's.
	LabelSourceNamespace = "controller.nicoleh.io/secretsync-source-namespace"
	// AnnotationMadeFor is the namespace and the name that the copy was made for.
	AnnotationMadeFor = "controller.nicoleh.io/secretsync-made-for"
)

// grace is how long a copy must be unwanted before it is deleted, unless one side says false: many tools change
// a Secret by deleting it and creating another one.
const grace = time.Minute

// Observed is everything that a decision about one copy depends on.
type Observed struct {
	Name            types.NamespacedName // of the copy
	SourceNamespace string
	SourceNS        *corev1.Namespace // the source namespace; nil if there is none
	TargetNS        *corev1.Namespace // the namespace of the copy; nil if there is none
	Source          *corev1.Secret    // the Secret of that name in the source namespace; nil if there is none
	Copy            *corev1.Secret    // the labeled Secret of that name in the target namespace; nil if there is none
	Unwanted        string            // why the copy was unwanted at the last sync; empty if it was not
	UnwantedFor     time.Duration     // how long this process has known that
}

// Action is what to do about a copy.
type Action string

// Create, Update and Delete are one write each; Replace is two.
const (
	None    Action = "none"
	Create  Action = "create"
	Update  Action = "update"
	Replace Action = "replace" // delete, then create
	Delete  Action = "delete"
)

// Decision is what to do.
type Decision struct {
	Action       Action
	Why          string        // for Replace and Delete
	Problem      Problem       // to report; the zero value if there is none
	Unwanted     string        // why the copy is unwanted; empty if it is not, or there is none
	RequeueAfter time.Duration // when to decide again even if nothing changes; zero for never
}

// wish is what the two sides together say about a copy.
type wish struct {
	is      verdict
	why     string        // why it is unwanted
	after   time.Duration // to wait before an unwanted copy is deleted
	problem Problem       // of a frozen copy, unless its source or namespace already has a Warning
}

type verdict int

const (
	wanted verdict = iota
	frozen
	unwanted
)

// bothSides returns what the two sides together say. There is a target namespace.
func (o Observed) bothSides() wish {
	target, source := answerOf(o.TargetNS), silent
	if o.Source != nil {
		source = answerTo(o.TargetNS.Name, o.Source)
	}
	switch {
	case target == no:
		return wish{is: unwanted, why: "its namespace says false"}
	case source == no:
		return wish{is: unwanted, why: "its source says false"}
	case target == silent:
		return wish{is: frozen, problem: o.silentNamespace()}
	case target == unclear:
		return wish{is: frozen}
	case o.Source == nil:
		return o.withoutSource()
	case source == silent:
		return wish{is: frozen, problem: o.silentSource()}
	case source == unclear:
		return wish{is: frozen}
	case source == unlisted:
		return wish{is: unwanted, why: "its source does not list the namespace", after: grace}
	}
	return wish{is: wanted}
}

// withoutSource returns what to do with a copy whose source is missing. If the source namespace is gone, or younger than
// the copy, the source may have gone with it.
func (o Observed) withoutSource() wish {
	switch {
	case isGone(o.SourceNS):
		return wish{is: frozen, problem: o.noSourceNamespace()}
	case o.Copy != nil && o.Copy.CreationTimestamp.Before(&o.SourceNS.CreationTimestamp):
		return wish{is: frozen, problem: o.youngSourceNamespace()}
	}
	return wish{is: unwanted, why: "its source was deleted", after: grace}
}

// isReserved reports whether copies are never written to a namespace, or deleted from it.
func isReserved(namespace, sourceNamespace string) bool {
	return namespace == metav1.NamespaceSystem || namespace == metav1.NamespacePublic || namespace == sourceNamespace
}

// isGone reports whether a namespace does not exist or is being deleted.
func isGone(namespace *corev1.Namespace) bool {
	return namespace == nil || namespace.DeletionTimestamp != nil
}

// IsWanted reports whether there should be a copy.
func (o Observed) IsWanted() bool {
	return !isGone(o.TargetNS) && !isReserved(o.Name.Namespace, o.SourceNamespace) && o.bothSides().is == wanted
}

// Decide returns what to do by the five rules. It knows nothing of earlier writes.
func Decide(o Observed) Decision {
	if isGone(o.TargetNS) || isReserved(o.Name.Namespace, o.SourceNamespace) {
		return Decision{Action: None} // A namespace that is deleted takes its Secrets with it.
	}
	both := o.bothSides()
	switch {
	case both.is == wanted && o.Copy == nil:
		return Decision{Action: Create}
	case o.Copy == nil:
		return Decision{Action: None}
	case both.is == wanted:
		return o.keep()
	case !o.isMade():
		return Decision{Action: None} // There should be no copy here, and this is none.
	case both.is == frozen:
		return Decision{Action: None, Problem: both.problem}
	}
	waited := o.UnwantedFor
	if o.Unwanted != both.why { // Each reason has a minute of its own.
		waited = 0
	}
	if both.after > waited {
		return Decision{Action: None, Unwanted: both.why, RequeueAfter: both.after - waited}
	}
	return Decision{Action: Delete, Unwanted: both.why, Why: both.why}
}

// keep returns what to do about a labeled Secret where there should be a copy. A copy can stay immutable if its source is
// not.
func (o Observed) keep() Decision {
	_, isPlaced := o.Copy.Annotations[AnnotationMadeFor]
	hasType, hasData := o.Copy.Type == o.Source.Type, hasSameData(o.Copy, o.Source)
	isFixed := !hasType || !hasData && isImmutable(o.Copy) // It cannot be changed in place.
	switch {
	case isPlaced && !o.isMade():
		return Decision{Action: None, Problem: o.leftAlone("it was made for another place")}
	case isFixed && !o.isMade():
		return Decision{Action: None, Problem: o.leftAlone("someone else made it immutable, or of another type")}
	case !hasType:
		return Decision{Action: Replace, Why: "its type has changed"}
	case isFixed:
		return Decision{Action: Replace, Why: "it is immutable"}
	case hasData && o.isMade() && (isImmutable(o.Copy) || !isImmutable(o.Source)):
		return Decision{Action: None}
	}
	return Decision{Action: Update}
}

// isMade reports whether a labeled Secret says that it was made for this very place.
func (o Observed) isMade() bool { return o.Copy.Annotations[AnnotationMadeFor] == o.Name.String() }

func isImmutable(secret *corev1.Secret) bool { return ptr.Deref(secret.Immutable, false) }

// asked identifies what a write asks for.
func (o Observed) asked(d Decision) pace.Wish {
	if d.Action == Delete {
		return pace.Wish{Digest: "gone"}
	}
	return pace.Wish{Digest: fmt.Sprintf("%x %s %t", digestOf(o.Source), o.Source.Type, isImmutable(o.Source))}
}

// want returns the copy as it is created. It shares the data of the source. Of the source's metadata, only the
// name is copied: labels, annotations and owners would tell other tools that the copy is theirs.
func (o Observed) want() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   o.Name.Namespace,
			Name:        o.Name.Name,
			Labels:      map[string]string{LabelSourceNamespace: o.SourceNamespace},
			Annotations: map[string]string{AnnotationMadeFor: o.Name.String()},
		},
		Type:      o.Source.Type,
		Data:      o.Source.Data,
		Immutable: o.Source.Immutable,
	}
}

// patch returns a JSON patch, and its type. It updates the copy if it is still as it was observed, and has the same effect
// whatever the copy contains. A copy keeps the metadata that others have added. A Secret that becomes a copy loses its
// annotations, because kubectl apply keeps the old data in one of them.
func (o Observed) patch() (types.PatchType, []byte, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	patch := []operation{
		{"add", "/metadata/uid", o.Copy.UID},
		{"add", "/metadata/resourceVersion", o.Copy.ResourceVersion},
	}
	want := o.want()
	if !o.isMade() {
		patch = append(patch, operation{"add", "/metadata/annotations", want.Annotations})
	}
	if !hasSameData(o.Copy, o.Source) {
		data := map[string][]byte{} // not null
		maps.Copy(data, want.Data)
		patch = append(patch, operation{"add", "/data", data})
	}
	if isImmutable(o.Source) {
		patch = append(patch, operation{"add", "/immutable", true})
	}
	body, err := json.Marshal(patch)
	return types.JSONPatchType, body, err
}
