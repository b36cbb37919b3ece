package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The reasons of events. All are about the source, unless the comment says otherwise.
const (
	ReasonReplaced            = "CopyReplaced"        // the copy was deleted and created again, because it could not be updated
	ReasonDeleted             = "CopyDeleted"         // the copy was deleted
	ReasonFailed              = "CopyFailed"          // the API server refuses the copy
	ReasonContested           = "CopyContested"       // the copy does not stay as it is written
	ReasonNameTaken           = "ErrResourceExists"   // a Secret of that name is not a copy
	ReasonUnclear             = "UnclearAnnotation"   // frozen: what the annotation says is unclear; also about namespaces
	ReasonMarkMissing         = "MarkMissing"         // frozen: the annotation is gone; also about namespaces
	ReasonSourceNamespaceGone = "SourceNamespaceGone" // frozen: the source may have gone with its namespace; also about that
)

// Problem is the content of an event. The zero Problem means that nothing is wrong.
type Problem struct {
	About           corev1.ObjectReference
	Reason, Message string
}

// about returns a problem of this copy, for an event about its source.
func (o Observed) about(reason, message string) Problem {
	return Problem{o.aboutSource(), reason, fmt.Sprintf("Namespace %q: %s", o.Name.Namespace, message)}
}

// leftAlone returns the problem with a labeled Secret that is not a copy and cannot become one.
func (o Observed) leftAlone(why string) Problem {
	return o.about(ReasonNameTaken, fmt.Sprintf("the Secret there has the label of a copy, but %s, so it is left alone. To get a copy instead: kubectl delete secret %s --namespace=%s",
		why, o.Name.Name, o.Name.Namespace))
}

// silentSource returns the problem with a source that has lost its annotation.
func (o Observed) silentSource() Problem {
	return Problem{o.aboutSource(), ReasonMarkMissing, markMissing("its copies") + byHand(o.SourceNamespace, allOf(o.Name.Name, o.SourceNamespace))}
}

// silentNamespace returns the problem with a namespace that has lost its annotation.
func (o Observed) silentNamespace() Problem {
	return Problem{reference(o.TargetNS), ReasonMarkMissing, markMissing("the copies here") + byHand(o.SourceNamespace, allIn(o.Name.Namespace))}
}

func markMissing(copies string) string {
	return fmt.Sprintf(`Annotation %s is gone, so %s are neither changed nor deleted. Set it again, or to "false" to delete them. `, Annotation, copies)
}

// noSourceNamespace returns the problem with a source namespace that is gone or being deleted.
func (o Observed) noSourceNamespace() Problem {
	about := reference(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.SourceNamespace}})
	return Problem{about, ReasonSourceNamespaceGone, "The namespace of the sources is gone or being deleted, so their copies are neither changed nor deleted. " +
		"Create it and the sources again. " + byHand(o.SourceNamespace, "--all-namespaces --field-selector=metadata.namespace!="+o.SourceNamespace)}
}

// youngSourceNamespace returns the problem with a source that is missing from a namespace that was created again.
func (o Observed) youngSourceNamespace() Problem {
	return Problem{o.aboutSource(), ReasonSourceNamespaceGone, "The source is missing, and its namespace is younger than a copy, so its copies are neither changed nor deleted. " +
		"Create it again. " + byHand(o.SourceNamespace, allOf(o.Name.Name, o.SourceNamespace))}
}

// unclearSource returns the message about the annotation of a source; empty if it is clear.
func unclearSource(source *corev1.Secret) string {
	why := whyUnclear(source)
	if why == "" {
		return ""
	}
	return fmt.Sprintf("No copy is created, changed or deleted until annotation %s is clear: %s. %s", Annotation, why, byHand(source.Namespace, allOf(source.Name, source.Namespace)))
}

// unclearNamespace returns the message about the annotation of a namespace; empty if it is clear.
func unclearNamespace(namespace *corev1.Namespace, sourceNamespace string) string {
	if isReserved(namespace.Name, sourceNamespace) || isGone(namespace) || answerOf(namespace) != unclear {
		return ""
	}
	return fmt.Sprintf(`No copy here is created, changed or deleted until annotation %s is clear: %.60q is neither "true" nor "false". %s`,
		Annotation, namespace.Annotations[Annotation], byHand(sourceNamespace, allIn(namespace.Name)))
}

// byHand says how to delete frozen copies by hand.
func byHand(sourceNamespace, selected string) string {
	return fmt.Sprintf("To delete them by hand: kubectl delete secrets %s --selector=%s=%s", selected, LabelSourceNamespace, sourceNamespace)
}

// allOf selects the copies of a source, and not a source that has their label.
func allOf(name, sourceNamespace string) string {
	return fmt.Sprintf("--all-namespaces --field-selector=metadata.name=%s,metadata.namespace!=%s", name, sourceNamespace)
}

// allIn selects the copies in a namespace.
func allIn(namespace string) string { return "--namespace=" + namespace }

// aboutSource is what an event about the source refers to, even if that is gone.
func (o Observed) aboutSource() corev1.ObjectReference {
	if o.Source != nil {
		return reference(o.Source)
	}
	return reference(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.SourceNamespace, Name: o.Name.Name}})
}

func reference(obj metav1.Object) corev1.ObjectReference {
	kind := "Secret"
	if _, isNamespace := obj.(*corev1.Namespace); isNamespace {
		kind = "Namespace"
	}
	return corev1.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID()}
}
