package main

import (
	"crypto/rand"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// A source or a namespace that says no has its copies deleted at once. But two things would
// delete most copies although hardly anyone wants that: the deletion of the source namespace, and
// a start with other flags, or after changes that nobody watched. These deletions are held until
// someone confirms them. README.md has a diagram.

// AnnotationConfirm on the source namespace confirms that the copies which are held should be
// deleted. Its value is the id that this process has drawn for the hold, and printed. Each id
// counts once, so nothing that is written today confirms anything later.
const AnnotationConfirm = domain + Name + "-confirm-deletions"

// Hold is what holds deletions.
type Hold string

// The holds.
const (
	HoldNamespace Hold = "source namespace" // is gone, or another one
	HoldStart     Hold = "start"            // of this process: most copies were unwanted
)

// whyHeld returns what holds the deletion of the copy, which is unwanted, and why; empty if it
// may be deleted. Who says no means it.
func (o Observed) whyHeld(whyNot string) (hold Hold, why string) {
	if whyNot == whyGone && o.Confirmed != HoldNamespace {
		switch uid := o.Copy.Annotations[AnnotationSourceNamespaceUID]; {
		case o.SourceNS == nil:
			return HoldNamespace, fmt.Sprintf("the source namespace %q is gone", o.SourceNamespace)
		case o.SourceNS.DeletionTimestamp != nil:
			return HoldNamespace, fmt.Sprintf("the source namespace %q is being deleted", o.SourceNamespace)
		case uid != string(o.SourceNS.UID):
			return HoldNamespace, fmt.Sprintf("the source namespace %q has been deleted and re-created since they were made", o.SourceNamespace)
		}
	}
	if o.Brake != "" && o.Confirmed != HoldStart && whyNot != whyNo {
		return HoldStart, o.Brake
	}
	return "", ""
}

// brakeAtStart holds the deletion of the copies that are unwanted according to the caches, if
// more than one of them is, and more namespaces would lose most of their copies than would not.
// So nobody can move the brake by Secrets that look like copies: they count only where they are.
func (c *Controller) brakeAtStart() {
	type namespace struct{ wanted, unwanted int }
	namespaces := map[string]namespace{}
	var held []cache.ObjectName
	for _, secret := range cached(c.copies.List(labels.Everything())) {
		o := c.observe(cache.MetaObjectToName(secret))
		if !o.isMade(secret) || isGone(o.TargetNS) || isGone(o.SourceNS) || secret.Annotations[AnnotationSourceNamespaceUID] != string(o.SourceNS.UID) {
			continue
		}
		n := namespaces[secret.Namespace]
		switch wish, whyNot := o.wish(); {
		case wish == wanted:
			n.wanted++
		case wish == unwanted && whyNot != whyNo:
			n.unwanted++
			held = append(held, cache.MetaObjectToName(secret))
		}
		namespaces[secret.Namespace] = n
	}
	losing := 0
	for _, n := range namespaces {
		if n.unwanted > n.wanted {
			losing++
		}
	}
	if len(held) < 2 || 2*losing <= len(namespaces) {
		return
	}
	why := fmt.Sprintf("%d copies in %d namespaces would be deleted at startup, as after a change of flags", len(held), losing)
	for _, name := range held {
		c.memories.change(name, func(r *memory) { r.Brake = why })
	}
}

// confirm is told which annotations a source namespace had, and has now.
func (c *Controller) confirm(before, after *corev1.Namespace) {
	id := after.Annotations[AnnotationConfirm]
	if id == "" || before.Annotations[AnnotationConfirm] == id {
		return
	}
	confirmed := c.memories.confirm(id)
	for _, name := range confirmed {
		c.Add(name)
	}
	if len(confirmed) == 0 {
		c.recorder.Eventf(after, corev1.EventTypeWarning, ReasonUnclear,
			"Annotation %s is %.60q, which confirms nothing: an id is valid once, and only for the process that issued it. Use the id in the latest event %s", AnnotationConfirm, id, ReasonHeld)
	}
}

// drawID returns an id that nobody has seen before.
func drawID() string { return strings.ToLower(rand.Text()[:10]) }
