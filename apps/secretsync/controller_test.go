package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kittest"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
	"nicoleh.io/k8s-controller/pkg/kittest/startup"
)

const isTaken = `db Warning: ErrResourceExists: Namespace "team-a": a Secret of that name already exists and is not managed by secretsync`

func TestCopies(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"), newSource("unmarked", "1", unmarked), newSource("refused", "1", saying(usual.Annotation, "false")))
		c.put(newNamespace("team-a", marked), newNamespace("team-b", marked), newNamespace("team-c"), newNamespace("ending", marked, ending))
		c.put(newNamespace("kube-system", marked), newNamespace("kube-public", marked), newNamespace("vault", marked))
		stop := c.run()
		kittest.Pass(time.Minute)
		equal(t, "Secrets", []string{"team-a/db", "team-b/db", "vault/db", "vault/refused", "vault/unmarked"}, c.names())
		equal(t, "writes", []string{"create team-a/db", "create team-b/db"}, c.writes())

		copied := c.secret("team-a", "db")
		equal(t, "data", c.secret("vault", "db").Data, copied.Data)
		equal(t, "labels", map[string]string{LabelSourceNamespace: "vault"}, copied.Labels)
		equal(t, "owners", nil, copied.OwnerReferences)
		equal(t, "annotations", map[string]string{
			AnnotationSourceName: "db", AnnotationMadeFor: "team-a",
			AnnotationSourceNamespaceUID: string(script.Get[corev1.Namespace](c.Cluster, "", "vault").UID),
		}, copied.Annotations)

		kittest.Pass(24 * time.Hour)
		stop()
		c.run()
		kittest.Pass(24 * time.Hour)
		equal(t, "writes of two days and a restart", nil, c.writes())
		equal(t, "events", nil, c.events())
	})
}

// A rate cannot see the step from nothing to one, so every series is there before the first write.
func TestWritesAreCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.run()
		before := scrape(t, "secretsync_writes_total", "action")
		equal(t, "actions", []string{"create", "delete", "replace", "update"}, slices.Sorted(maps.Keys(before)))
		c.put(newSource("db", "1"))
		c.put(newNamespace("team-a", marked))
		kittest.Pass(time.Minute)
		equal(t, "creations", before["create"]+1, scrape(t, "secretsync_writes_total", "action")["create"])
	})
}

// What is decided in each case is in testdata/decide.
func TestCopiesFollow(t *testing.T) {
	deleted := func(why string) []string {
		return []string{`db Normal: CopyDeleted: Namespace "team-a": deleted the copy, because ` + why}
	}
	replaced := func(why string) []string {
		return []string{`db Normal: CopyReplaced: Namespace "team-a": deleting and re-creating the copy, because ` + why}
	}
	replaces := []string{"create team-a/db", "delete team-a/db", "try team-a/db"}
	for _, tt := range []struct {
		name   string
		change func(c *cluster)
		writes []string
		events []string
	}{
		{"a rotation", func(c *cluster) { c.put(newSource("db", "2")) }, []string{"update team-a/db"}, nil},
		{"fewer keys", func(c *cluster) {
			c.put(newSource("db", "1", func(s *corev1.Secret) { s.Data = map[string][]byte{"other": []byte(marker)} }))
		}, []string{"update team-a/db"}, nil},
		{"a new type", func(c *cluster) { c.put(newSource("db", "1", ofType("example.com/other"))) }, replaces, replaced("its type has changed")},
		{"a source that says no", func(c *cluster) { c.put(newSource("db", "1", saying(usual.Annotation, "false"))) }, []string{"delete team-a/db"}, deleted("its source says that it should not be copied")},
		{"a source that goes", func(c *cluster) { c.lacks("vault", "db") }, []string{"delete team-a/db"}, deleted("its source is gone")},
		{"a source that is gone for a moment, twice", func(c *cluster) { // Many tools change a Secret by deleting it and creating another one.
			c.Release("secrets")
			for range 2 {
				c.lacks("vault", "db")
				kittest.Pass(50 * time.Second)
				c.put(newSource("db", "2"))
				kittest.Pass(50 * time.Second)
			}
		}, []string{"update team-a/db"}, nil},
		{"a namespace without its annotation", func(c *cluster) { c.put(newNamespace("team-a")) }, []string{"delete team-a/db"}, deleted("the namespace is no longer marked")},
		{"a copy that is edited", func(c *cluster) {
			c.edit("team-a", "db", func(s *corev1.Secret) { s.Data["password"], s.Data["more"] = []byte("x"), []byte("y") })
		}, []string{"update team-a/db"}, nil},
		{"a copy that is made immutable, and a rotation", func(c *cluster) {
			c.edit("team-a", "db", immutable)
			c.Release("secrets") // Sources and copies are in two caches: the rotation comes last.
			kittest.Pass(time.Second)
			c.put(newSource("db", "2"))
		}, replaces, replaced("it is immutable")},
		{"a copy that is deleted", func(c *cluster) { c.lacks("team-a", "db") }, []string{"create team-a/db"}, nil},
		{"a copy with something of another's", func(c *cluster) {
			c.edit("team-a", "db", func(s *corev1.Secret) { s.Labels["team"], s.Annotations["note"] = "a", "b" })
		}, nil, nil},
	} {
		for _, whileDown := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, while down: %t", tt.name, whileDown), func(t *testing.T) {
				inBubble(t, func(t *testing.T, c *cluster) {
					stop := c.begin()
					if whileDown {
						stop()
					}
					c.Hold("secrets") // so that it sees several changes at once
					tt.change(c)
					c.Release("secrets")
					if whileDown {
						c.run()
					}
					kittest.Pass(10 * time.Second)
					if tt.name == "a source that goes" {
						equal(t, "writes in less than a minute", nil, c.writes())
					}
					kittest.Pass(grace)
					equal(t, "writes", tt.writes, slices.Compact(c.writes())) // Until the cache shows a deletion, it can be sent again.
					equal(t, "events", tt.events, c.events())
					if copied, source := c.secret("team-a", "db"), c.secret("vault", "db"); copied != nil {
						equal(t, "data", source.Data, copied.Data)
						equal(t, "type", source.Type, copied.Type)
					}
				})
			})
		}
	}
}

// A copy has exactly the data of its source, whatever it or the source had before: a renewer can
// clear a Secret and fill it again.
func TestACopyHasTheDataOfItsSource(t *testing.T) {
	contents := map[string]map[string][]byte{
		"nothing":        nil,
		"an empty value": {"password": {}},
		"a value":        {"password": []byte(marker + "1")},
		"other keys":     {"user": []byte(marker + "2"), "more": []byte(marker + "3")},
	}
	for before, old := range contents {
		for after, wanted := range contents {
			for kind, alter := range map[string]func(*corev1.Secret){"": func(*corev1.Secret) {}, ", immutable": immutable, ", of another type": ofType("example.com/other")} {
				t.Run(before+" becomes "+after+kind, func(t *testing.T) {
					inBubble(t, func(t *testing.T, c *cluster) {
						with := func(data map[string][]byte) *corev1.Secret {
							return newSource("db", "", func(s *corev1.Secret) { s.Data = data })
						}
						labeled := with(old)
						labeled.ObjectMeta = metav1.ObjectMeta{Namespace: "team-a", Name: "db", Labels: map[string]string{LabelSourceNamespace: "vault"}}
						alter(labeled)
						c.put(newNamespace("team-a", marked), labeled, with(wanted))
						c.run()
						kittest.Pass(time.Minute)
						equal(t, "data", wanted, c.secret("team-a", "db").Data)
						c.put(with(old))
						kittest.Pass(time.Second)
						c.put(with(wanted))
						kittest.Pass(time.Minute)
						equal(t, "data after a moment with other data", wanted, c.secret("team-a", "db").Data)
						if !isImmutable(c.secret("team-a", "db")) {
							c.edit("team-a", "db", func(s *corev1.Secret) { s.Data = old })
							kittest.Pass(time.Minute)
						}
						equal(t, "data after somebody has changed it", wanted, c.secret("team-a", "db").Data)
						equal(t, "warnings", nil, c.warnings())
					})
				})
			}
		}
	}
}

// A renewer has taken the mark away: nothing changes until that is clear.
func TestAMarkIsMissing(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("private", "1", unmarked), newNamespace("team-b", marked), newNamespace("team-c", marked))
		stop := c.begin()
		c.put(newSource("db", "2", unmarked))
		kittest.Pass(time.Hour)
		stop()
		c.run()
		kittest.Pass(24 * time.Hour)
		equal(t, "writes", nil, c.writes())
		missing := `db Warning: MarkMissing: Its copies are neither changed nor deleted, because the Secret has lost its annotation example.com/share. ` +
			"If it was restricted by controller.nicoleh.io/secretsync-namespaces or controller.nicoleh.io/secretsync-namespace-selector, set both again in one command: " +
			`without a restriction, all marked namespaces get it. Or set it to "false" to delete the copies`
		equal(t, "events of two processes", []string{missing, missing}, c.events())
		requireProblems(t, map[string]int64{ReasonMarkMissing: 3})

		c.put(newSource("db", "2"))
		kittest.Pass(time.Minute)
		requireProblems(t, nil)
		equal(t, "data with the mark", newSource("db", "2").Data, c.secret("team-b", "db").Data)
	})
}

// A Secret of somebody else is left alone, and becomes the copy when somebody labels it: so are
// those of another tool taken over.
func TestANameThatIsTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"), newNamespace("team-a", marked), newNamespace("team-b", marked), foreign("team-a", "db"))
		c.run()
		kittest.Pass(time.Hour)
		equal(t, "events", []string{isTaken}, c.events())
		equal(t, "writes", []string{"create team-a/db", "create team-b/db"}, c.writes())

		c.put(newSource("db", "2"))
		kittest.Pass(time.Hour)
		c.put(newNamespace("team-a"))
		kittest.Pass(time.Hour)
		c.put(newNamespace("team-a", marked))
		kittest.Pass(time.Hour)
		equal(t, "what was there", foreign("team-a", "db").Data, c.secret("team-a", "db").Data)
		equal(t, "events", []string{isTaken}, c.events()) // because it is wanted again
		c.writes()

		c.edit("team-a", "db", func(s *corev1.Secret) { s.Labels = map[string]string{LabelSourceNamespace: "vault"} })
		kittest.Pass(time.Minute)
		equal(t, "writes", []string{"update team-a/db"}, c.writes())
		equal(t, "data", newSource("db", "2").Data, c.secret("team-a", "db").Data)
		requireProblems(t, nil)
		c.put(newNamespace("team-a"))
		kittest.Pass(time.Minute)
		equal(t, "Secrets", []string{"team-b/db", "vault/db"}, c.names())
	})
}

// One list a minute finds all names that are free again.
func TestManyNamesAreTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		const n = 100
		for i := range n {
			namespace := fmt.Sprintf("team-%03d", i)
			c.put(newNamespace(namespace, marked), foreign(namespace, "db"))
		}
		c.put(newSource("db", "1"))
		c.run()
		kittest.Pass(time.Minute)
		equal(t, "creations", n, len(c.writes()))
		c.ForgetRequests()
		kittest.Pass(10 * time.Minute)
		equal(t, "creations in ten minutes", 0, len(c.writes()))
		if lists := c.Requests("list secrets"); lists > 11 {
			t.Errorf("%d lists in ten minutes", lists)
		}
		requireProblems(t, map[string]int64{ReasonNameTaken: n})
		c.lacks("team-007", "db")
		kittest.Pass(2 * retryTaken)
		equal(t, "creations", []string{"create team-007/db"}, c.writes())
	})
}

// A backup of a namespace is restored under another name, which is marked, too, or not.
func TestAClonedNamespace(t *testing.T) {
	const is = `the Secret is a copy that was created for namespace "team-a", as after a backup is restored under another name; ignoring it. ` +
		"To have a copy made, if one is asked for: kubectl delete secret db --namespace team-b"
	for _, isMarked := range []bool{false, true} {
		inBubble(t, func(t *testing.T, c *cluster) {
			c.begin()
			clone := c.secret("team-a", "db")
			clone.Namespace = "team-b"
			c.put(newNamespace("team-b"), clone)
			kittest.Pass(time.Hour)
			equal(t, "events", []string{"db Warning: NotACopy: " + is}, c.events())
			requireProblems(t, nil) // A stranger's Secret is none.
			if isMarked {
				c.put(newNamespace("team-b", marked))
			}
			c.put(newSource("db", "2"))
			kittest.Pass(time.Hour)
			equal(t, "data of the clone", newSource("db", "1").Data, c.secret("team-b", "db").Data)
			if !isMarked {
				equal(t, "more events", nil, c.events())
				return
			}
			equal(t, "events", []string{`db Warning: ErrResourceExists: Namespace "team-b": ` + is}, c.events())
			requireProblems(t, map[string]int64{ReasonNameTaken: 1})
			c.lacks("team-b", "db")
			kittest.Pass(time.Minute)
			equal(t, "data", newSource("db", "2").Data, c.secret("team-b", "db").Data)
			requireProblems(t, nil)
		})
	}
}

// Whoever can write in one namespace changes nothing for others by Secrets that look like copies:
// nobody gets what is not meant for them, no copy of others is written, deleted or held, and each
// rotation comes to all at once.
func TestATenantChangesNothingForOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("private", "1", saying(AnnotationNamespaces, "team-*")), newNamespace("team-b", marked), newNamespace("tenant", marked))
		stop := c.begin()
		others := []string{"team-a/db", "team-a/private", "team-b/db", "team-b/private"}
		for hour, mark := range []string{"true", "ture", "no", "true"} {
			c.put(newNamespace("tenant", valued(mark)))
			for _, name := range []string{"db", "private", "strange"} {
				for _, change := range []func(s *corev1.Secret){
					func(*corev1.Secret) {},
					func(s *corev1.Secret) { s.Annotations = nil },
					func(s *corev1.Secret) { s.Annotations[AnnotationMadeFor] = "team-a" },
					func(s *corev1.Secret) { s.Annotations[AnnotationSourceName] = "other" },
					func(s *corev1.Secret) { s.Annotations[usual.Annotation], s.Annotations[AnnotationNamespaces] = "", "*" },
					immutable,
				} {
					secret := planted("tenant", name)
					change(secret)
					c.put(secret)
					kittest.Pass(10 * time.Second)
					if is := c.secret("tenant", "private"); is != nil {
						requireNoSecret(t, "the tenant's Secret", string(is.Data["password"]))
					}
				}
			}
			isOfOthers := func(name string) bool { return strings.Contains(name, "team-") }
			equal(t, "writes to others", nil, slices.DeleteFunc(c.writes(), func(write string) bool { return !isOfOthers(write) }))
			c.put(newSource("db", fmt.Sprint(hour+2)))
			kittest.Pass(time.Second)
			equal(t, "a rotation", c.secret("vault", "db").Data, c.secret("team-b", "db").Data)
			equal(t, "copies of others", others, slices.DeleteFunc(c.names(), func(name string) bool { return !isOfOthers(name) }))
			c.writes()
		}
		stop()
		c.lacks("vault", "private")
		c.run()
		kittest.Pass(2 * grace)
		equal(t, "copies that are revoked while nothing is running", nil, c.secret("team-b", "private"))
	})
}

func TestOneNamespaceThatRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		for i := range 20 {
			c.put(newNamespace(fmt.Sprintf("team-%02d", i), marked))
		}
		n := 0
		c.answers(func(_, namespace string) error {
			if namespace != "team-07" {
				return nil
			}
			n++ // in other words each time, and with codes that usually mean something else
			resource := secretResource.GroupResource()
			denied := apierrors.NewConflict(resource, "db", errors.New("no"))
			denied.ErrStatus.Message = `admission webhook "w" denied the request: no`
			return []error{
				apierrors.NewForbidden(resource, "db", fmt.Errorf("exceeded quota: small, %d", n)),
				apierrors.NewAlreadyExists(resource, ""),
				denied,
			}[(n-1)%3]
		})
		c.run()
		equal(t, "how many Secrets", 20, len(c.names()))
		kittest.Pass(time.Hour)
		equal(t, "events", []string{`db Warning: CopyFailed: Namespace "team-07": creating the copy: secrets "db" is forbidden: exceeded quota: small, 1`}, c.events())
		if n < 17 || n > 21 { // 8 in the first five minutes, and then one in five
			t.Errorf("it was tried %d times in an hour", n)
		}
		equal(t, "attempts in the log", n, strings.Count(c.logged.String(), `"Sync failed"`))
		requireProblems(t, map[string]int64{ReasonFailed: 1})
		c.put(newSource("db", "2"))
		kittest.Pass(time.Second)
		equal(t, "data of another", newSource("db", "2").Data, c.secret("team-06", "db").Data)
		c.answers(nil)
		kittest.Pass(6 * time.Minute)
		equal(t, "how many Secrets", 21, len(c.names()))
		requireProblems(t, nil)
	})
}

// What does not reach the API server, or it has no time for, is nobody's refusal.
func TestFailuresThatAreNoRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newNamespace("team-a", marked))
		c.run()
		failures, n := []error{errors.New("EOF"), apierrors.NewTooManyRequests("slow down", 1)}, 0
		c.answers(func(string, string) error { n++; return failures[n%2] })
		c.put(newSource("db", "1"))
		kittest.Pass(30 * time.Second)
		requireProblems(t, nil)
		c.answers(nil)
		kittest.Pass(time.Minute)
		equal(t, "Secrets", []string{"team-a/db", "vault/db"}, c.names())
		equal(t, "events", nil, c.events())
	})
}

// A ValidatingAdmissionPolicy sees a namespace as it was before it was marked.
func TestAPolicyThatIsBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"), newNamespace("team-a", marked))
		denial := apierrors.NewForbidden(secretResource.GroupResource(), "db", errors.New("ValidatingAdmissionPolicy 'x' with binding 'x' denied request: no"))
		n := 0
		c.answers(func(string, string) error {
			if n++; n == 1 {
				return denial
			}
			return nil
		})
		c.run()
		kittest.Pass(3 * time.Second)
		equal(t, "Secrets", []string{"team-a/db", "vault/db"}, c.names())
		equal(t, "events", nil, c.events())
		c.answers(func(string, string) error { return denial })
		c.put(newSource("db", "2"))
		kittest.Pass(time.Minute)
		equal(t, "how many events if it lasts", 1, len(c.events()))
	})
}

// The cache does not show that a namespace is being deleted: a copy that is refused for that
// reason is retried rarely, and that is no news about the copy.
func TestANamespaceThatEndsUnseen(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newNamespace("team-a", marked))
		c.run()
		c.Hold("namespaces")
		// It is deleted between the live read and the creation.
		terminating := apierrors.NewForbidden(secretResource.GroupResource(), "db", errors.New("the namespace is being terminated"))
		terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		c.answers(func(string, string) error { return terminating })
		c.put(newSource("db", "1"))
		kittest.Pass(time.Hour)
		if n := len(c.writes()); n > 21 {
			t.Errorf("%d attempts in an hour", n)
		}
		c.answers(nil)
		c.put(newNamespace("team-a", marked, ending))
		kittest.Pass(time.Hour)
		equal(t, "writes when a live read shows it", nil, c.writes())
		c.Release("namespaces")
		kittest.Pass(time.Hour)
		equal(t, "events", nil, c.events())
		requireProblems(t, nil)

		c.vanishes("team-a")
		c.put(newNamespace("team-a", marked))
		kittest.Pass(time.Second)
		equal(t, "Secrets when it is re-created", []string{"team-a/db", "vault/db"}, c.names())
	})
}

// A namespace that is deleted and re-created again and again has its copy at once each time.
func TestANamespaceThatIsRecreated(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.run()
		for range 20 {
			c.put(newNamespace("ci", marked))
			kittest.Pass(time.Second)
			equal(t, "Secrets", []string{"ci/db", "vault/db"}, c.names())
			c.vanishes("ci")
			kittest.Pass(time.Second)
		}
		equal(t, "events", nil, c.events())
		requireProblems(t, nil)
	})
}

// Each creation costs a read of the namespace and one of the source, and so do each update with new
// data and each deletion. Each copy is synced once after a change of its source, and once after the write.
func TestWhatACopyCosts(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		const n = 50
		c.put(newSource("db", "1"))
		for i := range n {
			c.put(newNamespace(fmt.Sprintf("team-%02d", i), marked))
		}
		requireRequests := func(what string, want map[string]int) {
			t.Helper()
			kittest.Pass(time.Minute)
			got := map[string]int{}
			for _, request := range []string{"get namespaces", "list secrets", "create secrets", "patch secrets", "delete secrets"} {
				if m := c.Requests(request); m > 0 {
					got[request] = m
				}
			}
			equal(t, "requests for "+what, want, got)
			c.ForgetRequests()
		}
		c.run()
		requireRequests("new copies", map[string]int{"get namespaces": n, "list secrets": n + 2, "create secrets": n})
		before := c.logged.Len()
		c.put(newSource("db", "2"))
		requireRequests("a rotation", map[string]int{"get namespaces": n, "list secrets": n, "patch secrets": n})
		syncs := regexp.MustCompile(`"(?:Synced|Sync deferred)".* object="`).FindAllString(c.logged.String()[before:], -1)
		if len(syncs) < n || len(syncs) > 2*n {
			t.Errorf("there were %d syncs of %d copies", len(syncs), n)
		}
		c.put(newNamespace("team-00", marked, labeled("cattle.io/state", "x")), newSource("db", "2", saying("example.com/note", "x")))
		requireRequests("what changes no copy", nil)
		c.put(newSource("db", "2", saying(usual.Annotation, "no")))
		requireRequests("deletions", map[string]int{"get namespaces": n, "list secrets": n, "delete secrets": n})
	})
}

// The cache of namespaces is older than that of copies: a copy that another process has
// written for a namespace which has just been marked is not deleted.
func TestNothingIsDeletedBecauseACacheIsBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.begin()
		copied := c.secret("team-a", "db")
		c.put(newNamespace("team-a"))
		kittest.Pass(time.Minute)
		equal(t, "Secrets", []string{"vault/db"}, c.names())
		c.writes()

		c.Hold("namespaces")
		c.put(newNamespace("team-a", marked), copied)
		kittest.Pass(time.Minute)
		equal(t, "writes", nil, c.writes())
		equal(t, "Secrets", []string{"team-a/db", "vault/db"}, c.names())
	})
}

// The cache of sources is older than the others: a source is no longer meant for a namespace, in which
// somebody has labeled a Secret.
func TestNothingIsShownBecauseACacheIsBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newNamespace("tenant"))
		c.begin()
		c.mu.Lock()
		c.isCutOff = true
		c.mu.Unlock()
		c.Expire("secrets")
		c.put(newSource("db", "1", saying(AnnotationNamespaces, "team-a")))
		labeled := foreign("tenant", "db")
		labeled.Labels = map[string]string{LabelSourceNamespace: "vault"}
		c.put(labeled, newNamespace("tenant", marked))
		kittest.Pass(time.Minute)
		equal(t, "writes", nil, c.writes())
		equal(t, "the Secret", foreign("tenant", "db").Data, c.secret("tenant", "db").Data)
	})
}

// What looks like a copy is synced again when its namespace appears in the cache.
func TestACopyIsKnownBeforeItsNamespace(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.run()
		c.Hold("namespaces")
		c.put(newNamespace("team-a"), planted("team-a", "db"))
		kittest.Pass(time.Minute)
		equal(t, "Secrets", []string{"team-a/db", "vault/db"}, c.names())
		c.Release("namespaces")
		kittest.Pass(time.Minute)
		equal(t, "Secrets", []string{"vault/db"}, c.names())
	})
}

// A copy is deleted before the cache shows it, and the watch breaks off at the same time: no
// event ever says so.
func TestACopyThatVanishesUnseen(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newNamespace("team-a", marked), newSource("db", "1"))
		c.answers(func(string, string) error { c.Hold("secrets"); return nil }) // the copy is not shown
		c.run()
		equal(t, "writes", []string{"create team-a/db"}, c.writes())
		c.lacks("team-a", "db")
		c.answers(nil)
		c.mu.Lock()
		c.isCutOff = true // or the next list of sources would have the copy synced
		c.mu.Unlock()
		c.Expire("secrets")
		c.Release("secrets")
		kittest.Pass(2 * recheckCreated)
		equal(t, "Secrets", []string{"team-a/db", "vault/db"}, c.names())
	})
}

// What admission makes of a copy is reported once, and accepted until the copy or its source
// changes, even if it is something else each time. A new process does not know of it, and asks
// once.
func TestAWebhookThatChangesCopies(t *testing.T) {
	nonce := 0
	for part, alter := range map[string]func(*corev1.Secret){
		"data":         func(s *corev1.Secret) { nonce++; s.Data["nonce"] = fmt.Appendf(nil, "%s%d", marker, nonce) },
		"annotations":  func(s *corev1.Secret) { s.Annotations = map[string]string{"by": "webhook"} },
		"immutability": immutable, // which is no problem
		"type":         func(s *corev1.Secret) { s.Type = "example.com/other" },
		"labels":       func(s *corev1.Secret) { s.Labels = nil },
	} {
		t.Run(part, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.alters(alter)
				c.put(newNamespace("team-b"))
				stop := c.begin()
				c.put(planted("team-b", "bookmark")) // shows how far the cache is
				kittest.Pass(24 * time.Hour)
				equal(t, "writes", []string{"delete team-b/bookmark"}, slices.Compact(c.writes()))
				var warnings []string
				problems := map[string]int64{}
				if part != "immutability" {
					warnings = []string{`db Warning: CopyAltered: Namespace "team-a": an admission policy or webhook changed the copy before it was stored: its ` + part +
						`; that is accepted until the copy or its source changes`}
					problems[ReasonAltered] = 1
				}
				equal(t, "warnings", warnings, c.warnings())
				requireProblems(t, problems)
				if part == "data" {
					stop()
					c.run()
					kittest.Pass(24 * time.Hour)
					equal(t, "writes of a new process", []string{"update team-a/db"}, c.writes())
				}
				c.alters(func(*corev1.Secret) {})
				if part == "labels" { // Then it is somebody else's.
					return
				}
				c.put(newSource("db", "2"))
				kittest.Pass(10 * time.Minute)
				equal(t, "data without the webhook", c.secret("vault", "db").Data, c.secret("team-a", "db").Data)
				requireProblems(t, nil)
				c.writes()
				kittest.Pass(time.Hour)
				equal(t, "writes", nil, c.writes())
			})
		})
	}
}

// An outdated copy is better than none: what cannot be created again is not deleted.
func TestAReplacementThatIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.begin()
		c.Admit(func(a apiserver.Admission) error { // as a quota does, also for dry runs
			if a.Verb != "create" || a.Key.Namespace != "team-a" {
				return nil
			}
			return apierrors.NewForbidden(a.Key.Resource, a.Key.Name, errors.New("exceeded quota: secrets"))
		})
		c.edit("team-a", "db", immutable)
		kittest.Pass(time.Second) // Of two caches, that of sources may be ahead.
		c.put(newSource("db", "2"))
		kittest.Pass(24 * time.Hour)
		equal(t, "data", newSource("db", "1").Data, c.secret("team-a", "db").Data)
		equal(t, "writes", []string{"try team-a/db"}, slices.Compact(c.writes()))
		equal(t, "how many events", 1, len(c.events()))
		requireProblems(t, map[string]int64{ReasonFailed: 1})
		c.Admit(nil)
		kittest.Pass(6 * time.Minute)
		equal(t, "data", newSource("db", "2").Data, c.secret("team-a", "db").Data)
		requireProblems(t, nil)
	})
}

// Someone reverts each write, deletes the copy each time, or re-creates an unwanted one.
func TestAFightIsSlow(t *testing.T) {
	for name, tt := range map[string]struct {
		isWanted bool
		who      string
		undo     func(c *cluster, copied *corev1.Secret)
	}{
		"about data": {true, `"gitops"`, func(c *cluster, s *corev1.Secret) {
			s.Data["password"] = []byte("x")
			s.ManagedFields = []metav1.ManagedFieldsEntry{
				{Manager: fieldManager, Operation: "Update", FieldsType: "FieldsV1", Time: ptr.To(metav1.Now())},
				{Manager: "gitops", Operation: "Update", FieldsType: "FieldsV1", Time: ptr.To(metav1.Now())},
			}
			c.put(s)
		}},
		"about whether it is there":       {true, "someone", func(c *cluster, s *corev1.Secret) { c.lacks(s.Namespace, s.Name) }},
		"about whether it should be gone": {false, "someone", func(c *cluster, s *corev1.Secret) { c.put(s) }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.begin()
				copied := c.secret("team-a", "db")
				if !tt.isWanted {
					c.put(newNamespace("team-a"))
				}
				fight := func(rounds int) (writes int) {
					for range rounds {
						if is := c.secret("team-a", "db"); tt.isWanted == (is != nil) {
							if is == nil {
								is = copied.DeepCopy()
							}
							tt.undo(c, is)
						}
						kittest.Pass(500 * time.Millisecond)
					}
					return len(c.writes())
				}
				if n := fight(20); n > 6 {
					t.Errorf("%d writes in ten seconds", n)
				}
				if n := fight(7200); n < 10 || n > 25 {
					t.Errorf("%d writes in an hour", n)
				}
				equal(t, "warnings", []string{`db Warning: CopyContested: Namespace "team-a": the copy keeps being reverted, last by ` + tt.who + `; retrying with back-off`}, c.warnings())
				requireProblems(t, map[string]int64{ReasonContested: 1})
				kittest.Pass(15 * time.Minute)
				requireProblems(t, nil)
				equal(t, "whether it is there", tt.isWanted, c.secret("team-a", "db") != nil)

				// A change of the source is written without delay.
				fight(20)
				c.put(newSource("db", "2"), newNamespace("team-a", marked))
				kittest.Pass(time.Second)
				equal(t, "data after a rotation", newSource("db", "2").Data, c.secret("team-a", "db").Data)
			})
		})
	}
}

// However many copies are contested, refused or restless, each costs a few writes in the first
// minutes, and then one in five minutes.
func TestNothingIsAStorm(t *testing.T) {
	const n = 10
	refuse := func(c *cluster) {
		c.answers(func(string, string) error {
			return apierrors.NewForbidden(secretResource.GroupResource(), "db", errors.New("no"))
		})
	}
	for name, storm := range map[string]func(c *cluster, second int){
		"a source that changes each second": func(c *cluster, second int) { c.put(newSource("db", fmt.Sprint(second))) },
		"a source that is re-created each second": func(c *cluster, second int) {
			c.lacks("vault", "db")
			c.put(newSource("db", fmt.Sprint(second)))
		},
		"copies that are refused, of a source that changes": func(c *cluster, second int) {
			refuse(c)
			c.put(newSource("db", fmt.Sprint(second)))
		},
		"copies that are deleted": func(c *cluster, _ int) {
			for i := range n {
				c.lacks(fmt.Sprintf("team-%d", i), "db")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				for i := range n {
					c.put(newNamespace(fmt.Sprintf("team-%d", i), marked))
				}
				c.put(newSource("db", "first"))
				c.run()
				c.writes()
				writes := func() float64 {
					for second := range 10 * 60 {
						storm(c, second)
						kittest.Pass(time.Second)
					}
					return float64(len(c.writes())) / n
				}
				if got := writes(); got > 12 {
					t.Errorf("%.1f writes for each copy in the first ten minutes", got)
				}
				if got := writes(); got > 2.5 {
					t.Errorf("%.1f writes for each copy in the next ten minutes", got)
				}
				c.answers(nil)
				c.put(newSource("db", "last"))
				kittest.Pass(6 * time.Minute)
				equal(t, "data in the end", newSource("db", "last").Data, c.secret("team-7", "db").Data)
			})
		})
	}
}

// A finalizer holds a copy. The words for each case are in testdata/decide.
func TestACopyThatAFinalizerHolds(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.begin()
		c.edit("team-a", "db", func(s *corev1.Secret) { s.Finalizers = []string{"example.com/wait"} })
		script.Delete[corev1.Secret](c.Cluster, "team-a", "db", metav1.DeletePropagationBackground)
		kittest.Pass(time.Hour)
		equal(t, "events while it is as its source", nil, c.events())
		c.put(newSource("db", "2"))
		kittest.Pass(24 * time.Hour)
		equal(t, "events", []string{`db Warning: CopyTerminating: Namespace "team-a": the copy is stuck in deletion (finalizers: "example.com/wait"), and it differs from its source`}, c.events())
		requireProblems(t, map[string]int64{ReasonTerminating: 1})
		equal(t, "writes", nil, c.writes())

		c.lacks("team-a", "db")
		kittest.Pass(time.Minute)
		requireProblems(t, nil)
		equal(t, "data", newSource("db", "2").Data, c.secret("team-a", "db").Data)
	})
}

// An admission webhook can repeat in its message what it was shown, or what was there before,
// which is not known.
func TestAnswersThatTellSecrets(t *testing.T) {
	source := newSource("db", "1", func(s *corev1.Secret) { s.Data["pin"] = []byte("1234") })
	const withheld = "the API server's message is withheld because it may contain data of the Secret; its reason is Forbidden"
	for name, tt := range map[string]struct {
		words, want string
		before      *corev1.Secret
	}{
		"nothing":                  {"no hunter, and no 123", `creating: secrets "db" is forbidden: no hunter, and no 123`, nil},
		"the data":                 {"password: " + marker + "1", withheld, nil},
		"the data in base64":       {"data: aHVudGVyMi0x", withheld, nil},
		"the data in JSON":         {`{"user":"` + marker + `admin"}`, withheld, nil},
		"a part of it":             {marker, withheld, nil},
		"a short value":            {"1234 is too short", withheld, nil},
		"maybe the data of before": {"no", withheld, copied(newSource("db", "0"))},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{Config: usual, Source: source, Copy: tt.before}
			got := o.redact(wrapped("creating", apierrors.NewForbidden(secretResource.GroupResource(), "db", errors.New(tt.words))))
			equal(t, "message", tt.want, got.Error())
			equal(t, "whether it still is what it was", true, apierrors.IsForbidden(got))
		})
	}
}

// What is remembered of a copy ends some time after the copy.
func TestCopiesAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newNamespace("team-b", marked))
		c.begin()
		identities := map[string]types.UID{}
		for _, namespace := range script.All[corev1.Namespace](c.Cluster) {
			identities[namespace.Name] = namespace.UID
		}
		c.put(newNamespace("team-a"))
		c.vanishes("team-b")
		kittest.Pass(20 * time.Minute)
		for _, namespace := range []string{"team-a", "team-b"} {
			name := cache.NewObjectName(namespace, "db")
			if c.controller.ledger.Find(name, identities[namespace]) != nil || c.controller.memories.of(name) != (memory{}) {
				t.Errorf("the copy in %s is remembered", namespace)
			}
		}
	})
}

func TestStartup(t *testing.T) {
	startup.Test(t, func(ctx context.Context, args []string) error { return newProgram().Run(ctx, args) })
}
