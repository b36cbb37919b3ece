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
	Unwanted        string            // why nobody wants the copy, as this process has known
	UnwantedFor     time.Duration     // for so long
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
	Problem      Problem       // why nothing is done, if somebody should know
	Unwanted     string        // why nobody wants the copy that there is; empty if somebody may
	RequeueAfter time.Duration // when to decide again even if nothing changes; zero for never
}

// Problem is what an event tells. The zero Problem means that nothing is wrong.
type Problem struct {
	About           corev1.ObjectReference
	Reason, Message string
}

// wish is what the two sides want of a copy.
type wish struct {
	is      verdict
	why     string        // it is unwanted
	after   time.Duration // to wait before an unwanted copy is deleted
	problem Problem       // of a frozen copy, unless it is told about the source or the namespace anyway
}

type verdict int

const (
	wanted verdict = iota
	frozen
	unwanted
)

// wish returns what the two sides want. There is a target namespace.
func (o Observed) wish() wish {
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
		return wish{is: frozen, problem: o.markMissing(reference(o.TargetNS), "the copies here", "--namespace="+o.TargetNS.Name)}
	case target == unclear:
		return wish{is: frozen}
	case o.Source == nil:
		return o.wishWithoutSource()
	case source == silent:
		return wish{is: frozen, problem: o.markMissing(o.aboutSource(), "its copies", allOf(o.Name.Name, o.SourceNamespace))}
	case source == unclear:
		return wish{is: frozen}
	case source == unlisted:
		return wish{is: unwanted, why: "its source does not list the namespace", after: grace}
	}
	return wish{is: wanted}
}

// wishWithoutSource returns what is wanted of a copy whose source is missing. Only if the namespace has outlived
// it, the source alone was deleted.
func (o Observed) wishWithoutSource() wish {
	switch {
	case isGone(o.SourceNS):
		about := reference(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.SourceNamespace}})
		return wish{is: frozen, problem: Problem{
			about, ReasonSourceNamespaceGone,
			"The namespace of the sources is gone or being deleted, so their copies are neither changed nor deleted. Create it and the sources again. " +
				byHand(o.SourceNamespace, "--all-namespaces --field-selector=metadata.namespace!="+o.SourceNamespace),
		}}
	case o.Copy != nil && o.Copy.CreationTimestamp.Before(&o.SourceNS.CreationTimestamp):
		return wish{is: frozen, problem: Problem{
			o.aboutSource(), ReasonSourceNamespaceGone,
			"The source is missing, and its namespace is younger than a copy, so its copies are neither changed nor deleted. Create it again. " +
				byHand(o.SourceNamespace, allOf(o.Name.Name, o.SourceNamespace)),
		}}
	}
	return wish{is: unwanted, why: "its source was deleted", after: grace}
}

// markMissing says that one side has lost its annotation.
func (o Observed) markMissing(about corev1.ObjectReference, copies, selected string) Problem {
	return Problem{about, ReasonMarkMissing, fmt.Sprintf(`Annotation %s is gone, so %s are neither changed nor deleted. Set it again, or to "false" to delete them. `, Annotation, copies) +
		byHand(o.SourceNamespace, selected)}
}

// byHand says how to delete frozen copies by hand.
func byHand(sourceNamespace, selected string) string {
	return fmt.Sprintf("To delete them by hand: kubectl delete secrets %s --selector=%s=%s", selected, LabelSourceNamespace, sourceNamespace)
}

// allOf selects the copies of a source, and not a source that has their label.
func allOf(name, sourceNamespace string) string {
	return fmt.Sprintf("--all-namespaces --field-selector=metadata.name=%s,metadata.namespace!=%s", name, sourceNamespace)
}

// reference returns what an event about an object refers to.
func reference(obj metav1.Object) corev1.ObjectReference {
	kind := "Secret"
	if _, isNamespace := obj.(*corev1.Namespace); isNamespace {
		kind = "Namespace"
	}
	return corev1.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID()}
}

// aboutSource refers to the source, even if that is gone.
func (o Observed) aboutSource() corev1.ObjectReference {
	if o.Source != nil {
		return reference(o.Source)
	}
	return reference(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.SourceNamespace, Name: o.Name.Name}})
}

// about returns a problem with this copy, which is told about its source.
func (o Observed) about(reason, message string) Problem {
	return Problem{o.aboutSource(), reason, fmt.Sprintf("Namespace %q: %s", o.Name.Namespace, message)}
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
	return !isGone(o.TargetNS) && !isReserved(o.Name.Namespace, o.SourceNamespace) && o.wish().is == wanted
}

// Decide returns what to do by the five rules. It knows nothing of earlier writes.
func Decide(o Observed) Decision {
	if isGone(o.TargetNS) || isReserved(o.Name.Namespace, o.SourceNamespace) {
		return Decision{Action: None} // A namespace that is deleted takes its Secrets with it.
	}
	wish := o.wish()
	switch {
	case wish.is == wanted && o.Copy == nil:
		return Decision{Action: Create}
	case o.Copy == nil:
		return Decision{Action: None}
	case wish.is == wanted:
		return o.keep()
	case !o.isMade():
		return Decision{Action: None} // Nobody wants a copy here, and this is none.
	case wish.is == frozen:
		return Decision{Action: None, Problem: wish.problem}
	}
	waited := o.UnwantedFor
	if o.Unwanted != wish.why { // Each reason has a minute of its own.
		waited = 0
	}
	if wish.after > waited {
		return Decision{Action: None, Unwanted: wish.why, RequeueAfter: wish.after - waited}
	}
	return Decision{Action: Delete, Unwanted: wish.why, Why: wish.why}
}

// keep returns what to do about a labeled Secret where there should be a copy. Immutability alone is no difference.
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

// leftAlone returns the problem with a labeled Secret that is no copy and cannot become one.
func (o Observed) leftAlone(why string) Problem {
	return o.about(ReasonNameTaken, fmt.Sprintf("the Secret there has the label of a copy, but %s, so it is left alone. To get a copy instead: kubectl delete secret %s --namespace=%s",
		why, o.Name.Name, o.Name.Namespace))
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

// patch returns a patch and its type. It makes the copy as it should be, if that still is as it was observed, and means
// the same whatever the copy contains. Metadata that others have added to a copy stays. A Secret that becomes a copy loses its annotations: by one of them, kubectl
// apply would keep the data that it had.
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
