package secretsync

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
)

// Whoever removes the mark of a source or a namespace, or deletes one, means it, and the
// copies are deleted at once. But two things would delete most copies although hardly
// anyone means that: the deletion of the source namespace, and a start with other flags.
// These deletions are held until someone confirms them. README.md has a diagram.

// AnnotationConfirm on the source namespace confirms that copies should be deleted. Its
// value is the time (RFC 3339) until which that applies, at most maxConfirm from now: a
// confirmation is for what someone knows about, and not for what happens next year.
const AnnotationConfirm = "controller.nicoleh.io/secretsync-confirm-deletions-until"

const maxConfirm = 24 * time.Hour

// whyHeld returns why the copy, which should be deleted, must not be without a
// confirmation; empty if it may be deleted.
func (o Observed) whyHeld() string {
	if isConfirmed(o.SourceNS, o.Now) {
		return ""
	}
	uid, isKnown := o.Copy.Annotations[AnnotationSourceNamespaceUID]
	switch {
	case o.SourceNS == nil:
		return fmt.Sprintf("the source namespace %q is gone", o.SourceNamespace)
	case o.SourceNS.DeletionTimestamp != nil:
		return fmt.Sprintf("the source namespace %q is being deleted", o.SourceNamespace)
	case isKnown && uid != string(o.SourceNS.UID):
		return fmt.Sprintf("the source namespace %q has been deleted and re-created since they were made", o.SourceNamespace)
	}
	return o.Brake
}

// isGone reports whether a namespace does not exist or is being deleted.
func isGone(namespace *corev1.Namespace) bool {
	return namespace == nil || namespace.DeletionTimestamp != nil
}

// isConfirmed reports whether someone has confirmed the deletions that whyHeld holds.
func isConfirmed(sourceNS *corev1.Namespace, now time.Time) bool {
	if isGone(sourceNS) {
		return false
	}
	until, err := time.Parse(time.RFC3339, sourceNS.Annotations[AnnotationConfirm])
	return err == nil && now.Before(until) && until.Sub(now) <= maxConfirm
}

// warningAboutConfirmation returns what is wrong with a confirmation; the zero Problem if
// nothing is, or if its time has passed.
func warningAboutConfirmation(sourceNS *corev1.Namespace, now time.Time) Problem {
	value, isConfirming := sourceNS.Annotations[AnnotationConfirm]
	until, err := time.Parse(time.RFC3339, value)
	if !isConfirming || err == nil && until.Sub(now) <= maxConfirm {
		return Problem{}
	}
	return Problem{ReasonUnclear, fmt.Sprintf("annotation %s is %.60q, which confirms nothing: it must be a time within the next %s, such as %q", AnnotationConfirm, value, maxConfirm, now.Add(time.Hour).UTC().Format(time.RFC3339))}
}

// brake holds the deletion of copies that would otherwise have been deleted at startup.
// It is safe for concurrent use.
type brake struct {
	mu    sync.Mutex
	names sets.Set[cache.ObjectName]
	why   string
}

// apply holds the deletion of these copies if they are more than half of total, and more
// than one.
func (b *brake) apply(names []cache.ObjectName, total int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(names) > 1 && 2*len(names) > total {
		b.names = sets.New(names...)
		b.why = fmt.Sprintf("%d of %d copies would be deleted at startup, as after a change of flags", len(names), total)
	}
}

// reason returns why a copy must not be deleted; empty if it is not held.
func (b *brake) reason(name cache.ObjectName) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.names.Has(name) {
		return b.why
	}
	return ""
}

// release no longer holds the deletion of a copy.
func (b *brake) release(name cache.ObjectName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.names.Delete(name)
}

// brakeAtStart applies the brake to the copies that would be deleted according to the
// caches.
func (c *Controller) brakeAtStart() {
	var unwanted []cache.ObjectName
	total := 0
	for secret := range c.copies.All() {
		if !c.config.isOurs(secret) {
			continue
		}
		total++
		o := c.observe(cache.MetaObjectToName(secret))
		if !o.IsWanted() && o.decide().Action == Delete {
			unwanted = append(unwanted, cache.MetaObjectToName(secret))
		}
	}
	c.brake.apply(unwanted, total)
}
