package secretsync

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/text"
)

// Removing the mark of a source or a namespace, or deleting one, deletes the copies at
// once. But two things would delete most copies although hardly anyone wants that: the
// deletion of the source namespace, and a start with other flags. These deletions are held
// until someone confirms them. README.md has a diagram.

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
	return o.Memory.Brake
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
	until, isTime := text.Time(sourceNS.Annotations[AnnotationConfirm])
	return isTime && now.Before(until) && until.Sub(now) <= maxConfirm
}

// warningAboutConfirmation returns what is wrong with a confirmation; the zero Problem if
// nothing is, or if its time has passed.
func warningAboutConfirmation(sourceNS *corev1.Namespace) Problem {
	value, isConfirming := sourceNS.Annotations[AnnotationConfirm]
	until, isTime := text.Time(value)
	if !isConfirming || isTime && time.Until(until) <= maxConfirm {
		return Problem{}
	}
	return Problem{ReasonUnclear, fmt.Sprintf("Annotation %s is %.60q, which confirms nothing: it must be a time such as 2006-01-02T15:04:05Z within the next %s", AnnotationConfirm, value, maxConfirm)}
}

// brakeAtStart holds the deletion of the copies that are unwanted according to the caches,
// if they are more than half of all copies, and more than one.
func (c *Controller) brakeAtStart() {
	var unwanted []cache.ObjectName
	total := 0
	for _, secret := range cached(c.copies.List(labels.Everything())) {
		if !c.config.isOurs(secret) {
			continue
		}
		total++
		name := cache.MetaObjectToName(secret)
		if o := c.observe(name); !o.IsWanted() && o.decide().Action == Delete {
			unwanted = append(unwanted, name)
		}
	}
	if len(unwanted) < 2 || 2*len(unwanted) <= total {
		return
	}
	why := fmt.Sprintf("%d of %d copies would be deleted at startup, as after a change of flags", len(unwanted), total)
	for _, name := range unwanted {
		c.memories.Store(name, Memory{Brake: why})
	}
}
