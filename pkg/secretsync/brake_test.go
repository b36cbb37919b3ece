package secretsync

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kittest"
)

// confirming returns an edit that confirms deletions until then.
func confirming(until time.Time) func(metav1.Object) {
	return func(obj metav1.Object) {
		obj.SetAnnotations(map[string]string{AnnotationConfirm: until.Format(time.RFC3339)})
	}
}

// eventsAbout returns the events about an object since the last call.
func (c *cluster) eventsAbout(name string) []string {
	return slices.DeleteFunc(c.events(), func(event string) bool { return !strings.HasPrefix(event, name+" ") })
}

// requireHeld requires that the metrics count so many held deletions.
func requireHeld(t *testing.T, want int) {
	t.Helper()
	equal(t, "copies that are held according to the metrics", want, problems(t)[ReasonHeld])
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

const wantHeld = `vault Warning: DeletionsHeld: Copies are not deleted, because %s. To confirm their deletion: kubectl annotate --overwrite namespace vault controller.nicoleh.io/secretsync-confirm-deletions-until=$(date -u -d +1hour +%%Y-%%m-%%dT%%H:%%M:%%SZ)`

// If other flags would delete most copies, none is deleted until someone confirms it.
func TestAChangeOfFlagsIsHeld(t *testing.T) {
	strict, other := usual, usual
	strict.RequireReceivers = true
	other.Annotation, other.Instance = "example.com/other", usual.Annotation
	for name, config := range map[string]Config{"receivers are required": strict, "another annotation of the same instance": other} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				putMany(c, 3)
				stop := c.run()
				kittest.Pass(time.Minute)
				equal(t, "copies", 6, c.copies())
				stop()
				c.writes()
				stop = c.runAs(config)
				kittest.Pass(time.Hour)
				stop() // a second restart changes nothing
				c.events()
				stop = c.runAs(config)
				kittest.Pass(24 * time.Hour)
				equal(t, "writes", nil, c.writes())
				equal(t, "events", []string{fmt.Sprintf(wantHeld, "6 of 6 copies would be deleted at startup, as after a change of flags")}, c.eventsAbout("vault"))
				requireHeld(t, 6)

				// A copy that is wanted again is no longer held.
				source := newSource("db-0", "1", func(s *corev1.Secret) {
					s.Annotations[AnnotationNamespaces] = "*"
					s.Annotations[other.Annotation] = ""
				})
				c.put(source)
				c.put(newNamespace("team-a", func(obj metav1.Object) {
					obj.SetAnnotations(map[string]string{usual.Annotation: "", other.Annotation: ""})
				}))
				kittest.Pass(time.Minute)
				c.put(newNamespace("team-a"))
				kittest.Pass(time.Minute)
				// Until the cache shows the deletion, it may be sent again, which is a 404.
				equal(t, "writes", []string{"delete team-a/db-0"}, slices.Compact(c.writes()))

				c.put(newNamespace("vault", confirming(time.Now().Add(time.Hour))))
				kittest.Pass(time.Minute)
				if config == strict {
					equal(t, "copies", 1, c.copies())
				} else {
					equal(t, "copies", 0, c.copies())
				}
				requireHeld(t, 0)
				stop()
			})
		})
	}
}

// Deletions are not held if they are at most half of the copies, or if the controller was
// running.
func TestFewDeletionsAreNotHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		putMany(c, 4)
		stop := c.run()
		kittest.Pass(time.Minute)
		stop()
		c.lacks(secretResource, "vault", "db-0")
		c.lacks(secretResource, "vault", "db-1")
		stop = c.run()
		kittest.Pass(time.Minute)
		equal(t, "copies of half", 4, c.copies())
		c.lacks(secretResource, "vault", "db-2")
		c.lacks(secretResource, "vault", "db-3")
		kittest.Pass(time.Minute)
		equal(t, "copies without any source, deleted while the controller runs", 0, c.copies())
		equal(t, "how many events, one for each copy", 8, len(c.events()))
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
							stop = c.run()
						}
						kittest.Pass(time.Hour)
					}
					c.writes()
					c.put(newNamespace("vault", ending))
					kittest.Pass(time.Second)
					for i := range sources {
						c.lacks(secretResource, "vault", fmt.Sprintf("db-%d", i))
						kittest.Pass(time.Second)
					}
					restart()
					c.lacks(namespacesGVR, "", "vault")
					restart()
					events := c.eventsAbout("vault")
					if len(events) == 0 || len(events) > 3 || events[0] != fmt.Sprintf(wantHeld, `the source namespace "vault" is being deleted`) && !isRestarted {
						t.Errorf("events: %q", events)
					}
					c.put(newNamespace("vault"))
					restart()
					equal(t, "writes", nil, c.writes())
					equal(t, "copies", sources, c.copies())
					requireHeld(t, sources)

					// Its Secrets are back, and from now on it is the source namespace as
					// before.
					for i := range sources {
						c.put(newSource(fmt.Sprintf("db-%d", i), "2"))
					}
					kittest.Pass(time.Minute)
					equal(t, "data", newSource("db-0", "2").Data, c.secret("team-a", "db-0").Data)
					requireHeld(t, 0)
					c.lacks(secretResource, "vault", "db-0")
					kittest.Pass(time.Minute)
					equal(t, "copies after someone has deleted a source", sources-1, c.copies())
					stop()
				})
			})
		}
	}
}

// The cache of namespaces does not show that the source namespace is being deleted.
func TestASourceNamespaceVanishesUnseen(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		putMany(c, 2)
		stop := c.run()
		kittest.Pass(time.Minute)
		c.writes()
		c.Hold()
		c.put(newNamespace("vault", ending))
		c.lacks(secretResource, "vault", "db-0")
		c.lacks(secretResource, "vault", "db-1")
		c.Flush(secretResource)
		kittest.Pass(time.Minute)
		c.lacks(namespacesGVR, "", "vault")
		c.Release()
		kittest.Pass(time.Minute)
		equal(t, "writes", nil, c.writes())
		equal(t, "how many events", 1, len(c.eventsAbout("vault")))

		// The namespace is re-created, and the deletions are confirmed there.
		c.put(newNamespace("vault", confirming(time.Now().Add(48*time.Hour))))
		kittest.Pass(time.Minute)
		c.put(newNamespace("vault", func(obj metav1.Object) { obj.SetAnnotations(map[string]string{AnnotationConfirm: "yes"}) }))
		kittest.Pass(time.Minute)
		equal(t, "copies", 4, c.copies())
		equal(t, "how many events about that", 2, len(c.eventsAbout("vault")))
		c.put(newNamespace("vault", confirming(time.Now().Add(-time.Hour))))
		kittest.Pass(time.Minute)
		equal(t, "copies after a confirmation that is over", 4, c.copies())
		c.put(newNamespace("vault", confirming(time.Now().Add(time.Hour))))
		kittest.Pass(time.Minute)
		equal(t, "copies", 0, c.copies())
		equal(t, "how many events, one for each copy", 4, len(c.events()))
		stop()
	})
}
