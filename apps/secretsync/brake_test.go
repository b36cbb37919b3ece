package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kittest"
)

// confirming returns an edit that confirms deletions with an id.
func confirming(id string) func(metav1.Object) {
	return func(obj metav1.Object) { obj.SetAnnotations(map[string]string{AnnotationConfirm: id}) }
}

var printed = regexp.MustCompile(`kubectl annotate --overwrite namespace vault controller\.nicoleh\.io/secretsync-confirm-deletions=([a-z0-9]{10})$`)

// requireHeld requires one event that tells that deletions are held, and why, and returns the id
// with which they can be confirmed.
func (c *cluster) requireHeld(n int, why string) (id string) {
	c.t.Helper()
	equal(c.t, "copies that are held", n, c.held())
	events := slices.DeleteFunc(c.events(), func(event string) bool { return !strings.HasPrefix(event, "vault ") })
	if len(events) != 1 || !strings.HasPrefix(events[0], "vault Warning: DeletionsHeld: Copies are not deleted, because "+why+".") || !printed.MatchString(events[0]) {
		c.t.Fatalf("events: %q, want one that says %s", events, why)
	}
	return printed.FindStringSubmatch(events[0])[1]
}

// held returns how many copies are held according to the metrics.
func (c *cluster) held() int { return int(gauge(c.t, "secretsync_troubles")[ReasonHeld]) }

// copies returns how many Secrets there are beside sources.
func (c *cluster) copies() int {
	return len(slices.DeleteFunc(c.names(), func(name string) bool { return strings.HasPrefix(name, "vault/") }))
}

// putMany creates that many sources, and two marked namespaces.
func putMany(c *cluster, sources int) {
	for i := range sources {
		c.put(newSource(fmt.Sprintf("db-%d", i), "1"))
	}
	c.put(newNamespace("team-a", marked))
	c.put(newNamespace("team-b", marked))
}

// If other flags would delete most copies, none is deleted until someone confirms it, and nobody
// can change that by Secrets that look like copies.
func TestAChangeOfFlagsIsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		const atStart = "6 copies in 2 namespaces would be deleted at startup, as after a change of flags"
		other := usual
		other.Annotation = "example.com/other"
		putMany(c, 3)
		c.put(newNamespace("tenant"))
		stop := c.run()
		kittest.Pass(time.Minute)
		for i := range 20 {
			strange := planted("tenant", fmt.Sprintf("strange-%d", i))
			strange.Annotations = nil
			c.put(strange)
		}
		kittest.Pass(time.Minute)
		equal(t, "copies according to the metrics", map[string]int64{"": 6}, gauge(t, "secretsync_copies"))
		c.writes()
		var id string
		for range 2 { // a second restart changes nothing
			stop()
			c.events()
			stop = c.runAs(other)
			kittest.Pass(24 * time.Hour)
			id = c.requireHeld(6, atStart)
		}
		equal(t, "writes", nil, c.writes())

		// A copy that is wanted again is no longer held.
		c.put(newSource("db-0", "1", saying(other.Annotation, "")))
		c.put(newNamespace("team-a", func(obj metav1.Object) { obj.SetAnnotations(map[string]string{other.Annotation: ""}) }))
		kittest.Pass(time.Minute)
		requireProblems(t, map[string]int64{ReasonHeld: 3, ReasonMarkMissing: 2}) // of team-a, two sources are not marked
		c.put(newNamespace("team-a"))
		kittest.Pass(time.Minute)
		equal(t, "writes", []string{"delete team-a/db-0"}, slices.Compact(c.writes()))
		c.put(newNamespace("vault", confirming(id)))
		kittest.Pass(time.Minute)
		equal(t, "Secrets beside sources", 20, c.copies())
		requireProblems(t, nil)

		// It counts once, and only for the process that has drawn it.
		stop()
		putMany(c, 3)
		stop = c.run()
		kittest.Pass(time.Minute)
		stop()
		c.events()
		c.runAs(other)
		kittest.Pass(time.Hour)
		c.requireHeld(6, atStart)
		for _, wrong := range []string{"yes", id} {
			c.put(newNamespace("vault"))
			kittest.Pass(time.Minute)
			c.put(newNamespace("vault", confirming(wrong)))
			kittest.Pass(time.Minute)
			equal(t, "Secrets beside sources", 26, c.copies())
			equal(t, "events", []string{fmt.Sprintf("vault Warning: UnclearAnnotation: Annotation %s is %q, which confirms nothing: an id is valid once, and only for the process that issued it. Use the id in the latest event DeletionsHeld", AnnotationConfirm, wrong)}, c.events())
		}
	})
}

// Deletions are not held if most namespaces keep most of their copies, or if the controller was
// running, or if somebody says no.
func TestFewDeletionsAreNotHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		putMany(c, 4)
		for i := range 5 {
			c.put(newNamespace(fmt.Sprintf("other-%d", i), marked))
		}
		stop := c.run()
		kittest.Pass(time.Minute)
		restart := func(change func()) {
			stop()
			change()
			stop = c.run()
			kittest.Pass(2 * time.Minute)
		}
		restart(func() {
			c.lacks("vault", "db-0")
			c.lacks("vault", "db-1")
			for i := range 20 { // somebody's, in two namespaces
				c.put(planted("team-a", fmt.Sprintf("strange-%d", i)))
				c.put(planted("team-b", fmt.Sprintf("strange-%d", i)))
			}
			c.put(newNamespace("team-a"))
		})
		equal(t, "held, as what was planted says that it is of another namespace vault", 20, c.held())
		equal(t, "copies of two sources in six namespaces", 6*2+20, c.copies())
		restart(func() {
			c.put(newSource("db-2", "1", saying(usual.Annotation, "false")))
			c.put(newSource("db-3", "1", saying(usual.Annotation, "false")))
		})
		equal(t, "copies of sources that say no", 20, c.copies())
		c.put(newSource("db-0", "1"))
		kittest.Pass(time.Minute)
		equal(t, "copies", 6+20, c.copies())
		c.lacks("vault", "db-0")
		kittest.Pass(2 * time.Minute)
		equal(t, "copies of a source that is deleted while the controller runs", 20, c.copies())
	})
}

// The deletion of the source namespace deletes no copies, not even a single one, or after
// a restart, or when the namespace is re-created.
func TestAVanishedSourceNamespaceIsHeld(t *testing.T) {
	for _, isRestarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("with a restart: %t", isRestarted), func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				putMany(c, 1)
				stop := c.run()
				kittest.Pass(time.Minute)
				c.writes()
				restart := func() {
					if isRestarted {
						stop()
						c.events()
						stop = c.run()
					}
					kittest.Pass(time.Hour)
				}
				c.put(newNamespace("vault", ending))
				c.lacks("vault", "db-0")
				restart()
				c.requireHeld(2, `the source namespace "vault" is being deleted`)
				c.vanishes("vault")
				restart()
				c.requireHeld(2, `the source namespace "vault" is gone`)
				c.put(newNamespace("team-b")) // A namespace that says no means it.
				c.put(newNamespace("vault"))
				restart()
				id := c.requireHeld(1, `the source namespace "vault" has been deleted and re-created since they were made`)
				equal(t, "writes", []string{"delete team-b/db-0"}, slices.Compact(c.writes()))

				// Its Secret is back, and from now on it is the source namespace as before.
				c.put(newSource("db-0", "2"))
				kittest.Pass(time.Minute)
				equal(t, "data", newSource("db-0", "2").Data, c.secret("team-a", "db-0").Data)
				requireProblems(t, nil)
				c.put(newNamespace("vault", confirming(id)))
				kittest.Pass(time.Minute)
				equal(t, "copies after a confirmation", 1, c.copies())
				c.lacks("vault", "db-0")
				kittest.Pass(2 * time.Minute)
				equal(t, "copies after someone has deleted a source", 0, c.copies())
			})
		})
	}
}

// The cache of namespaces does not show that the source namespace is being deleted.
func TestASourceNamespaceVanishesUnseen(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		putMany(c, 2)
		c.run()
		kittest.Pass(time.Minute)
		c.writes()
		c.Hold("namespaces")
		c.put(newNamespace("vault", ending))
		c.lacks("vault", "db-0")
		c.lacks("vault", "db-1")
		kittest.Pass(2 * time.Minute)
		c.requireHeld(4, `the source namespace "vault" is being deleted`)
		c.vanishes("vault")
		c.Release("namespaces")
		kittest.Pass(time.Minute)
		equal(t, "writes", nil, c.writes())

		// The namespace is re-created, and the deletions are confirmed there.
		c.events()
		c.put(newNamespace("vault"))
		kittest.Pass(time.Minute)
		id := c.requireHeld(4, `the source namespace "vault" has been deleted and re-created since they were made`)
		c.put(newNamespace("vault", confirming(id)))
		kittest.Pass(time.Minute)
		equal(t, "copies", 0, c.copies())
		equal(t, "how many events, one for each copy", 4, len(c.events()))
	})
}
