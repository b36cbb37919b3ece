package secretsync

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

// eventsAbout returns the events about an object since the last call.
func (c *cluster) eventsAbout(name string) []string {
	return slices.DeleteFunc(c.events(), func(event string) bool { return !strings.HasPrefix(event, name+" ") })
}

var printed = regexp.MustCompile(`kubectl annotate --overwrite namespace vault controller\.nicoleh\.io/secretsync-confirm-deletions=([a-z0-9]{10})$`)

// requireHeld requires one event that tells that deletions are held, and why, and returns the id
// with which they can be confirmed.
func (c *cluster) requireHeld(t *testing.T, n int, why string) (id string) {
	t.Helper()
	equal(t, "copies that are held according to the metrics", n, problems(t)[ReasonHeld])
	events := c.eventsAbout("vault")
	if len(events) != 1 || !strings.HasPrefix(events[0], "vault Warning: DeletionsHeld: Copies are not deleted, because "+why+".") || !printed.MatchString(events[0]) {
		t.Fatalf("events: %q, want one that says %s", events, why)
	}
	return printed.FindStringSubmatch(events[0])[1]
}

// copies returns how many copies there are.
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

const atStart = "6 copies in 2 namespaces would be deleted at startup, as after a change of flags"

// If other flags would delete most copies, none is deleted until someone confirms it, and nobody
// can change that by Secrets that look like copies.
func TestAChangeOfFlagsIsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		other := usual
		other.Annotation = "example.com/other"
		both := func(obj metav1.Object) {
			obj.SetAnnotations(map[string]string{usual.Annotation: "", other.Annotation: ""})
		}
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
		equal(t, "copies according to the metrics", map[string]int{"": 6}, gauge(t, "secretsync_copies"))
		stop()
		c.writes()
		c.events()
		stop = c.runAs(other)
		kittest.Pass(time.Hour)
		c.requireHeld(t, 6, atStart)
		stop() // a second restart changes nothing
		stop = c.runAs(other)
		kittest.Pass(24 * time.Hour)
		equal(t, "writes", nil, c.writes())
		id := c.requireHeld(t, 6, atStart)

		// A copy that is wanted again is no longer held.
		source := newSource("db-0", "1")
		both(source)
		c.put(source)
		c.put(newNamespace("team-a", both))
		kittest.Pass(time.Minute)
		requireProblems(t, map[string]int{ReasonHeld: 3, ReasonMarkMissing: 2}) // of team-a, two sources are not marked
		c.put(newNamespace("team-a", marked))
		kittest.Pass(time.Minute)
		equal(t, "writes", []string{"delete team-a/db-0"}, slices.Compact(c.writes()))
		c.events()

		c.put(newNamespace("vault", confirming(id)))
		kittest.Pass(time.Minute)
		equal(t, "copies", 20, c.copies())
		requireProblems(t, nil)

		// It counts once, and only for the process that has drawn it.
		stop()
		c.put(newNamespace("team-a", marked))
		c.put(newNamespace("team-b", marked))
		stop = c.run()
		kittest.Pass(time.Minute)
		equal(t, "copies", 26, c.copies())
		stop()
		c.events()
		c.runAs(other)
		kittest.Pass(time.Hour)
		if again := c.requireHeld(t, 6, atStart); again == id {
			t.Errorf("it has drawn %s again", id)
		}
		for _, wrong := range []string{"yes", id, "2030-01-01T00:00:00Z"} {
			c.put(newNamespace("vault"))
			kittest.Pass(time.Minute)
			c.put(newNamespace("vault", confirming(wrong)))
			kittest.Pass(time.Minute)
			equal(t, "copies", 26, c.copies())
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
		stop()
		c.lacks("vault", "db-0")
		c.lacks("vault", "db-1")
		for i := range 100 { // somebody's, in two namespaces
			c.put(planted("team-a", fmt.Sprintf("strange-%d", i)))
			c.put(planted("team-b", fmt.Sprintf("strange-%d", i)))
		}
		c.put(newNamespace("team-a"))
		stop = c.run()
		kittest.Pass(2 * time.Minute)
		equal(t, "held, as what was planted says that it is of another namespace vault", 100, problems(t)[ReasonHeld])
		equal(t, "what is left in one that is no longer marked", nil, slices.DeleteFunc(c.names(), func(name string) bool { return !strings.HasPrefix(name, "team-a/") }))
		equal(t, "copies of two sources", 12+100, c.copies())
		stop()
		for i := range 2 {
			c.put(newSource(fmt.Sprintf("db-%d", i+2), "1", saying(usual.Annotation, "false")))
		}
		stop = c.run()
		kittest.Pass(2 * time.Minute)
		equal(t, "copies of sources that say no", 100, c.copies())
		c.put(newSource("db-0", "1"))
		kittest.Pass(time.Minute)
		equal(t, "copies", 106, c.copies())
		c.lacks("vault", "db-0")
		kittest.Pass(2 * time.Minute)
		equal(t, "copies of a source that is deleted while the controller runs", 100, c.copies())
		stop()
	})
}

// The deletion of the source namespace deletes no copies, not even a single one, or after
// a restart, or when the namespace is re-created.
func TestAVanishedSourceNamespaceIsHeld(t *testing.T) {
	for _, sources := range []int{1, 3} {
		for _, isRestarted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d sources, with a restart: %t", sources, isRestarted), func(t *testing.T) {
				inBubble(t, func(t *testing.T, c *cluster) {
					putMany(c, sources)
					c.put(newNamespace("team-b"))
					stop := c.run()
					kittest.Pass(time.Minute)
					restart := func() {
						if isRestarted {
							stop()
							c.events()
							stop = c.run()
						}
						kittest.Pass(time.Hour)
					}
					c.writes()
					c.put(newNamespace("vault", ending))
					for i := range sources {
						c.lacks("vault", fmt.Sprintf("db-%d", i))
						kittest.Pass(time.Second)
					}
					restart()
					c.requireHeld(t, sources, `the source namespace "vault" is being deleted`)
					c.vanishes("vault")
					restart()
					c.requireHeld(t, sources, `the source namespace "vault" is gone`)
					c.put(newNamespace("vault"))
					restart()
					id := c.requireHeld(t, sources, `the source namespace "vault" has been deleted and re-created since they were made`)
					equal(t, "writes", nil, c.writes())
					equal(t, "copies", sources, c.copies())

					// Some of its Secrets are back, and from now on it is the source namespace as before.
					c.put(newSource("db-0", "2"))
					kittest.Pass(time.Minute)
					equal(t, "data", newSource("db-0", "2").Data, c.secret("team-a", "db-0").Data)
					equal(t, "held", sources-1, problems(t)[ReasonHeld])
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
}

// A namespace that no longer wants copies loses them, whatever has become of their sources.
func TestANamespaceSaysNoWhileDeletionsAreHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		putMany(c, 2)
		c.run()
		kittest.Pass(time.Minute)
		c.vanishes("vault")
		kittest.Pass(time.Hour)
		equal(t, "copies", 4, c.copies())
		c.put(newNamespace("team-a"))
		kittest.Pass(time.Minute)
		equal(t, "Secrets", []string{"team-b/db-0", "team-b/db-1"}, c.names())
	})
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
		c.requireHeld(t, 4, `the source namespace "vault" is being deleted`)
		c.vanishes("vault")
		c.Release("namespaces")
		kittest.Pass(time.Minute)
		equal(t, "writes", nil, c.writes())

		// The namespace is re-created, and the deletions are confirmed there.
		c.events()
		c.put(newNamespace("vault"))
		kittest.Pass(time.Minute)
		id := c.requireHeld(t, 4, `the source namespace "vault" has been deleted and re-created since they were made`)
		c.put(newNamespace("vault", confirming(id)))
		kittest.Pass(time.Minute)
		equal(t, "copies", 0, c.copies())
		equal(t, "how many events, one for each copy", 4, len(c.events()))
	})
}
