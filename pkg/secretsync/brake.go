package secretsync

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
)

// Somebody who takes the mark off a source or a namespace, or deletes one, means it,
// and the copies go at once. Two things take most copies away that hardly anybody
// means: that the source namespace is gone, and that a process begins with other flags.
// These deletions are held until somebody confirms them.

// AnnotationConfirm, of the source namespace, confirms that copies are to be deleted.
// It has the time until which that holds, by RFC 3339, and maxConfirm away at most: it
// is for what somebody has in mind, and not for what happens next year.
const AnnotationConfirm = "controller.nicoleh.io/secretsync-confirm-deletions-until"

const maxConfirm = 24 * time.Hour

// whyHeld says why the copy, which should be gone, is not to be deleted without
// confirmation; empty if it is.
func (o Observed) whyHeld() string {
	if isConfirmed(o.Home, o.Now) {
		return ""
	}
	home, isKnown := o.Copy.Annotations[AnnotationHomeUID]
	switch {
	case o.Home == nil:
		return fmt.Sprintf("the source namespace %q is gone", o.SourceNamespace)
	case o.Home.DeletionTimestamp != nil:
		return fmt.Sprintf("the source namespace %q is being deleted", o.SourceNamespace)
	case isKnown && home != string(o.Home.UID):
		return fmt.Sprintf("the source namespace %q is not the one that the source was in, which was deleted", o.SourceNamespace)
	}
	return o.Brake
}

// isGoing reports whether there is no such namespace, or soon will not be.
func isGoing(namespace *corev1.Namespace) bool {
	return namespace == nil || namespace.DeletionTimestamp != nil
}

// isConfirmed says whether somebody has confirmed what whyHeld holds.
func isConfirmed(home *corev1.Namespace, now time.Time) bool {
	if isGoing(home) {
		return false
	}
	until, err := time.Parse(time.RFC3339, home.Annotations[AnnotationConfirm])
	return err == nil && now.Before(until) && until.Sub(now) <= maxConfirm
}

// warningOfConfirm is what is wrong with a confirmation; none if nothing is, or if it
// is over.
func warningOfConfirm(home *corev1.Namespace, now time.Time) Problem {
	text, isThere := home.Annotations[AnnotationConfirm]
	until, err := time.Parse(time.RFC3339, text)
	if !isThere || err == nil && until.Sub(now) <= maxConfirm {
		return Problem{}
	}
	return Problem{ReasonUnclear, fmt.Sprintf("annotation %s is %.60q, which confirms nothing: it has to be a time within %s, such as %q", AnnotationConfirm, text, maxConfirm, now.Add(time.Hour).UTC().Format(time.RFC3339))}
}

// brake holds the deletions that most copies would have been up for when the process
// began. It is safe for concurrent use.
type brake struct {
	mu    sync.Mutex
	names sets.Set[cache.ObjectName]
	why   string
}

// pull holds these, of so many copies, if they are most of them. A single one is not
// worth it.
func (b *brake) pull(names []cache.ObjectName, of int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(names) > 1 && 2*len(names) > of {
		b.names = sets.New(names...)
		b.why = fmt.Sprintf("%d of %d copies would be deleted at the beginning, as after a change of flags", len(names), of)
	}
}

// why says why a copy is not to be deleted; empty if it is not held.
func (b *brake) whyHeld(name cache.ObjectName) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.names.Has(name) {
		return b.why
	}
	return ""
}

// release holds a copy no longer.
func (b *brake) release(name cache.ObjectName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.names.Delete(name)
}

// brakeAtStart holds the deletion of most copies, by what the caches show now.
func (c *Controller) brakeAtStart() error {
	var going []cache.ObjectName
	total := 0
	for _, secret := range list(c.copies.Lister().List(labels.Everything())) {
		if !c.config.isOurs(secret) {
			continue
		}
		total++
		o, err := c.observe(cache.MetaObjectToName(secret))
		if err != nil {
			return err
		}
		if !o.IsWanted() && o.decide().Action == Delete {
			going = append(going, cache.MetaObjectToName(secret))
		}
	}
	c.brake.pull(going, total)
	return nil
}

// tellHeld tells, once for all copies, that they are not deleted.
func (c *Controller) tellHeld(problem Problem) {
	until := "$(date -u -d +1hour +%Y-%m-%dT%H:%M:%SZ)"
	c.recorder.Eventf(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.config.SourceNamespace}}, nil, corev1.EventTypeWarning, ReasonHeld, "Delete",
		"Copies are not deleted, because %s. If they are to go: kubectl annotate --overwrite namespace %s %s=%s", problem.Words, c.config.SourceNamespace, AnnotationConfirm, until)
}
