package secretsync

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// The reasons of events, which are about sources, even those that are gone, unless the
// comment says otherwise.
const (
	ReasonNameTaken   = "ErrResourceExists" // a Secret of that name is not a copy
	ReasonFailed      = "CopyFailed"        // the API server refused the copy
	ReasonReplaced    = "CopyReplaced"      // the copy was deleted and re-created, because it could not be updated
	ReasonAltered     = "CopyAltered"       // the API server stored something else than requested
	ReasonContested   = "CopyContested"     // someone keeps reverting the copy
	ReasonTerminating = "CopyTerminating"   // finalizers hold a copy that is wrong
	ReasonHeld        = "DeletionsHeld"     // about the source namespace: deletions need a confirmation
	ReasonNoReceivers = "NoReceivers"       // the source does not say in an intelligible way who may have it
	ReasonUnclear     = "UnclearAnnotation" // the mark of a source or a namespace is neither yes nor no
)

// recordProblem records the problem of a copy in an event if it is news, and reports
// whether it is. That deletions are held is recorded once for all copies.
func (c *Controller) recordProblem(name cache.ObjectName, source *corev1.Secret, before, problem Problem) (isNews bool) {
	if problem.Reason == ReasonHeld {
		if isNews = !c.isHolding.Swap(true); isNews {
			c.recordHeld(problem)
		}
		return isNews
	}
	if before.Reason == ReasonHeld && c.memories.count()[ReasonHeld] == 0 {
		c.isHolding.Store(false)
	}
	isNews = problem != before && problem != Problem{}
	if isNews {
		if source == nil {
			source = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.config.SourceNamespace, Name: name.Name}}
		}
		c.record(source, name, corev1.EventTypeWarning, problem.Reason, "Copy", "Namespace %q: %s", name.Namespace, problem.Message)
	}
	return isNews
}

// recordHeld records that copies are not deleted.
func (c *Controller) recordHeld(problem Problem) {
	const until = "$(date -u -d +1hour +%Y-%m-%dT%H:%M:%SZ)"
	c.recorder.Eventf(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.config.SourceNamespace}}, nil, corev1.EventTypeWarning, ReasonHeld, "Delete",
		"Copies are not deleted, because %s. To confirm their deletion: kubectl annotate --overwrite namespace %s %s=%s", problem.Message, c.config.SourceNamespace, AnnotationConfirm, until)
}

// record records an event about a source that concerns the copy of that name.
func (c *Controller) record(source *corev1.Secret, name cache.ObjectName, eventType, reason, action, note string, args ...any) {
	c.recorder.Eventf(source, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}, eventType, reason, action, note, args...)
}
