package secretsync

import (
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
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kittest"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

const isTaken = `db Warning: ErrResourceExists: Namespace "team-a": a Secret of that name already exists and is not managed by secretsync`

func TestCopies(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.put(newSource("unmarked", "1", unmarked))
		c.put(newSource("refused", "1", saying(usual.Annotation, "false")))
		c.put(newNamespace("team-a", marked))
		c.put(newNamespace("team-b", marked))
		c.put(newNamespace("team-c"))
		c.put(newNamespace("ending", marked, ending))
		for _, reserved := range []string{"kube-system", "kube-public", "vault"} {
			c.put(newNamespace(reserved, marked))
		}
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

func TestCopiesFollow(t *testing.T) {
	sources := func(c *cluster, value string, edits ...func(*corev1.Secret)) { c.put(newSource("db", value, edits...)) }
	deleted := func(why string) []string {
		return []string{`db Normal: CopyDeleted: Namespace "team-a": deleted the copy, because ` + why}
	}
	replaced := []string{"create team-a/db", "delete team-a/db", "try team-a/db"}
	for _, tt := range []struct {
		name   string
		change func(c *cluster)
		writes []string
		events []string
	}{
		{"a rotation", func(c *cluster) { sources(c, "2") }, []string{"update team-a/db"}, nil},
		{"fewer keys", func(c *cluster) {
			sources(c, "1", func(s *corev1.Secret) { s.Data = map[string][]byte{"other": []byte(marker)} })
		}, []string{"update team-a/db"}, nil},
		{"what becomes immutable", func(c *cluster) { sources(c, "2", immutable) }, []string{"update team-a/db"}, nil},
		{
			"a new type", func(c *cluster) { sources(c, "1", ofType("example.com/other")) }, replaced,
			[]string{`db Normal: CopyReplaced: Namespace "team-a": deleting and re-creating the copy, because its type has changed`},
		},
		{"a source that says no", func(c *cluster) { sources(c, "1", saying(usual.Annotation, "false")) }, []string{"delete team-a/db"}, deleted("its source says that it should not be copied")},
		{"a source that goes", func(c *cluster) { c.lacks("vault", "db") }, []string{"delete team-a/db"}, deleted("its source is gone")},
		{"a source that is going", func(c *cluster) { sources(c, "1", func(s *corev1.Secret) { ending(s) }) }, []string{"delete team-a/db"}, deleted("its source is gone")},
		{"a source for others", func(c *cluster) { sources(c, "1", saying(AnnotationNamespaces, "team-b")) }, []string{"delete team-a/db"}, deleted("its source is no longer meant for the namespace")},
		{"a namespace without its annotation", func(c *cluster) { c.put(newNamespace("team-a")) }, []string{"delete team-a/db"}, deleted("the namespace is no longer marked")},
		{"a namespace that says no", func(c *cluster) { c.put(newNamespace("team-a", valued("false"))) }, []string{"delete team-a/db"}, deleted("the namespace is no longer marked")},
		{"a namespace that ends", func(c *cluster) { c.put(newNamespace("team-a", marked, ending)) }, nil, nil},
		{"a copy that is edited", func(c *cluster) {
			c.edit("team-a", "db", func(s *corev1.Secret) { s.Data["password"], s.Data["more"] = []byte("x"), []byte("y") })
		}, []string{"update team-a/db"}, nil},
		{"a copy that is made immutable", func(c *cluster) { c.edit("team-a", "db", immutable) }, nil, nil},
		{
			"a copy that is made immutable, and a rotation", func(c *cluster) {
				c.edit("team-a", "db", immutable)
				c.Release("secrets") // Sources and copies are in two caches: the rotation comes last.
				kittest.Pass(time.Second)
				sources(c, "2")
			}, replaced,
			[]string{`db Normal: CopyReplaced: Namespace "team-a": deleting and re-creating the copy, because it is immutable`},
		},
		{"a copy that is deleted", func(c *cluster) { c.lacks("team-a", "db") }, []string{"create team-a/db"}, nil},
		{"a copy with something of another's", func(c *cluster) {
			c.edit("team-a", "db", func(s *corev1.Secret) { s.Labels["team"], s.Annotations["note"] = "a", "b" })
		}, nil, nil},
		{"a source that is re-created", func(c *cluster) { c.lacks("vault", "db"); sources(c, "1") }, nil, nil},
	} {
		for _, whileDown := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, while down: %t", tt.name, whileDown), func(t *testing.T) {
				inBubble(t, func(t *testing.T, c *cluster) {
					sources(c, "1")
					c.put(newNamespace("team-a", marked))
					stop := c.run()
					kittest.Pass(time.Minute)
					c.writes()
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
					if strings.HasPrefix(tt.name, "a source that g") {
						equal(t, "writes in less than a minute", nil, c.writes())
					}
					kittest.Pass(grace)
					equal(t, "writes", tt.writes, slices.Compact(c.writes())) // Until the cache shows a deletion, it can be sent again.
					equal(t, "events", tt.events, c.events())
					if copied := c.secret("team-a", "db"); copied != nil && !strings.HasPrefix(tt.name, "a namespace") {
						equal(t, "data", c.secret("vault", "db").Data, copied.Data)
					}
				})
			})
		}
	}
}

// Many tools change a Secret by deleting it and creating another one.
func TestASourceIsGoneForAMoment(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.put(newNamespace("team-a", marked))
		c.run()
		kittest.Pass(time.Minute)
		c.writes()
		for _, value := range []string{"1", "2"} {
			c.lacks("vault", "db")
			kittest.Pass(50 * time.Second)
			c.put(newSource("db", value))
			kittest.Pass(50 * time.Second)
		}
		equal(t, "writes", []string{"update team-a/db"}, c.writes())
		equal(t, "events", nil, c.events())
		equal(t, "data", newSource("db", "2").Data, c.secret("team-a", "db").Data)
	})
}

// A renewer has taken the mark away: nothing changes until that is clear.
func TestAMarkIsMissing(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.put(newSource("private", "1", unmarked))
		for i := range 3 {
			c.put(newNamespace(fmt.Sprintf("team-%d", i), marked))
		}
		stop := c.run()
		kittest.Pass(time.Minute)
		c.writes()
		c.put(newSource("db", "2", unmarked))
		kittest.Pass(time.Hour)
		stop()
		stop = c.run()
		kittest.Pass(24 * time.Hour)
		equal(t, "writes", nil, c.writes())
		missing := `db Warning: MarkMissing: Its copies are neither changed nor deleted, because the Secret has lost its annotation example.com/share. Set it again, or set it to "false" to delete the copies`
		equal(t, "events of two processes", []string{missing, missing}, c.events())
		requireProblems(t, map[string]int{ReasonMarkMissing: 3})

		c.put(newSource("db", "2"))
		kittest.Pass(time.Minute)
		requireProblems(t, nil)
		equal(t, "data with the mark", newSource("db", "2").Data, c.secret("team-1", "db").Data)
		c.put(newSource("db", "2", unmarked))
		c.put(newNamespace("team-0"))
		kittest.Pass(time.Minute)
		equal(t, "Secrets, as one namespace has lost its mark", []string{"team-1/db", "team-2/db", "vault/db", "vault/private"}, c.names())
		stop()
		c.put(newSource("db", "2", saying(usual.Annotation, "false")))
		c.run()
		kittest.Pass(time.Minute)
		equal(t, "Secrets after the source says no, while nothing was running", []string{"vault/db", "vault/private"}, c.names())
	})
}

func TestANameThatIsTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.put(newNamespace("team-a", marked))
		c.put(newNamespace("team-b", marked))
		c.put(foreign("team-a", "db"))
		c.run()
		kittest.Pass(time.Hour)
		equal(t, "events", []string{isTaken}, c.events())
		equal(t, "writes", []string{"create team-a/db", "create team-b/db"}, c.writes())

		c.put(newSource("db", "2"))
		kittest.Pass(time.Hour)
		c.put(newNamespace("team-a"))
		c.put(newNamespace("team-b"))
		kittest.Pass(time.Hour)
		c.put(newNamespace("team-a", marked))
		kittest.Pass(time.Hour)
		equal(t, "what was there", foreign("team-a", "db").Data, c.secret("team-a", "db").Data)
		equal(t, "warnings", []string{isTaken}, c.warnings()) // because it is wanted again

		c.lacks("team-a", "db")
		kittest.Pass(2 * retryTaken)
		equal(t, "the copy when there is room", c.secret("vault", "db").Data, c.secret("team-a", "db").Data)
		requireProblems(t, nil)
	})
}

// One list a minute finds all names that are free again.
func TestManyNamesAreTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		const n = 300
		for i := range n {
			c.put(newNamespace(fmt.Sprintf("team-%03d", i), marked))
			c.put(foreign(fmt.Sprintf("team-%03d", i), "db"))
		}
		c.put(newSource("db", "1"))
		c.run()
		kittest.Pass(time.Minute)
		equal(t, "creations", n, len(c.writes()))
		lists := c.Requests("list secrets")
		kittest.Pass(10 * time.Minute)
		equal(t, "creations in ten minutes", 0, len(c.writes()))
		if more := c.Requests("list secrets") - lists; more > 11 {
			t.Errorf("%d lists in ten minutes", more)
		}
		requireProblems(t, map[string]int{ReasonNameTaken: n})
		c.lacks("team-007", "db")
		kittest.Pass(2 * retryTaken)
		equal(t, "creations", []string{"create team-007/db"}, c.writes())
	})
}

// A Secret that someone labels becomes the copy: so are those of another tool taken over.
func TestAdoption(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.put(newNamespace("team-a", marked))
		theirs := foreign("team-a", "db")
		theirs.Annotations = map[string]string{"reflector.v1.k8s.emberstack.com/reflects": "vault/db"}
		c.put(theirs)
		c.run()
		kittest.Pass(time.Minute)
		equal(t, "events", []string{isTaken}, c.events())
		c.writes()
		c.edit("team-a", "db", func(s *corev1.Secret) { s.Labels = map[string]string{LabelSourceNamespace: "vault"} })
		kittest.Pass(time.Minute)
		equal(t, "writes", []string{"update team-a/db"}, c.writes())
		adopted := c.secret("team-a", "db")
		equal(t, "data", newSource("db", "1").Data, adopted.Data)
		equal(t, "an annotation of others", "vault/db", adopted.Annotations["reflector.v1.k8s.emberstack.com/reflects"])
		requireProblems(t, nil)
		c.put(newNamespace("team-a"))
		kittest.Pass(time.Minute)
		equal(t, "Secrets", []string{"vault/db"}, c.names())
	})
}

// A copy that someone has copied to another name, or whose label someone has removed,
// belongs to them.
func TestWhatIsNoCopyAnyMore(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.put(newNamespace("team-a", marked))
		c.run()
		kittest.Pass(time.Minute)
		other := c.secret("team-a", "db")
		other.Name = "db-for-tests"
		c.put(other)
		c.edit("team-a", "db", func(s *corev1.Secret) { s.Labels = nil })
		kittest.Pass(time.Minute)
		c.writes()
		c.put(newNamespace("team-a"))
		kittest.Pass(time.Hour)
		equal(t, "Secrets", []string{"team-a/db", "team-a/db-for-tests", "vault/db"}, c.names())
		equal(t, "writes", nil, c.writes())
		const theirs = `the Secret was copied from the copy of "db", and not by secretsync; ignoring it. Remove its label controller.nicoleh.io/secretsync-source-namespace, or delete the Secret`
		equal(t, "events", []string{isTaken, "db-for-tests Warning: NotACopy: " + theirs}, c.events())

		c.put(newSource("db-for-tests", "2"))
		c.put(newNamespace("team-a", marked))
		kittest.Pass(time.Hour)
		equal(t, "what they made their own", newSource("db", "1").Data, c.secret("team-a", "db-for-tests").Data)
		equal(t, "events", []string{isTaken, `db-for-tests Warning: ErrResourceExists: Namespace "team-a": ` + theirs}, c.events())
	})
}

// A backup of a namespace is restored under another name, which is marked, too, or not.
func TestAClonedNamespace(t *testing.T) {
	for _, isMarked := range []bool{false, true} {
		inBubble(t, func(t *testing.T, c *cluster) {
			c.put(newSource("db", "1"))
			c.put(newNamespace("team-a", marked))
			c.run()
			kittest.Pass(time.Minute)
			clone := c.secret("team-a", "db")
			clone.Namespace = "team-b"
			c.put(newNamespace("team-b"))
			c.put(clone)
			if isMarked {
				c.put(newNamespace("team-b", marked))
			}
			kittest.Pass(time.Hour)
			c.put(newSource("db", "2"))
			kittest.Pass(time.Hour)
			equal(t, "data of the clone", newSource("db", "1").Data, c.secret("team-b", "db").Data)
			const words = `the Secret is a copy that was created for namespace "team-a", as after a backup is restored under another name; ignoring it. ` +
				"To have a copy made, if one is asked for: kubectl delete secret db --namespace team-b"
			if isMarked {
				equal(t, "events", []string{`db Warning: ErrResourceExists: Namespace "team-b": ` + words}, slices.DeleteFunc(c.events(), func(event string) bool { return strings.Contains(event, ReasonNotMade) }))
				requireProblems(t, map[string]int{ReasonNameTaken: 1})
				c.lacks("team-b", "db")
				kittest.Pass(time.Minute)
				equal(t, "data", newSource("db", "2").Data, c.secret("team-b", "db").Data)
			} else {
				equal(t, "events", []string{"db Warning: NotACopy: " + words}, c.events())
			}
			requireProblems(t, nil) // A stranger's Secret is none.
		})
	}
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
			n++ // in other words each time
			return apierrors.NewForbidden(secretResource.GroupResource(), "db", fmt.Errorf("exceeded quota: small, %d", n))
		})
		c.run()
		kittest.Pass(time.Second)
		equal(t, "how many Secrets", 20, len(c.names()))
		kittest.Pass(time.Hour)
		equal(t, "events", []string{`db Warning: CopyFailed: Namespace "team-07": creating the copy: secrets "db" is forbidden: exceeded quota: small, 1`}, c.events())
		if n < 17 || n > 21 { // 8 in the first five minutes, and then one in five
			t.Errorf("it was tried %d times in an hour", n)
		}
		equal(t, "attempts in the log", n, strings.Count(c.logged.String(), `"Sync failed"`))
		requireProblems(t, map[string]int{ReasonFailed: 1})
		c.put(newSource("db", "2"))
		kittest.Pass(time.Second)
		if last := c.writes(); !slices.Contains(last, "update team-06/db") {
			t.Errorf("%s", last)
		}
		c.answers(nil)
		kittest.Pass(6 * time.Minute)
		equal(t, "how many Secrets", 21, len(c.names()))
		requireProblems(t, nil)
	})
}

// What does not reach the API server, or it has no time for, is nobody's refusal.
func TestFailuresThatAreNoRefusals(t *testing.T) {
	for name, err := range map[string]error{
		"no connection":       errors.New("EOF"),
		"too many requests":   apierrors.NewTooManyRequests("slow down", 1),
		"a server that stops": apierrors.NewServiceUnavailable("shutting down"),
		"a timeout":           apierrors.NewTimeoutError("too slow", 1),
		"expired credentials": apierrors.NewUnauthorized("who is it?"),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.put(newNamespace("team-a", marked))
				c.run()
				c.answers(func(string, string) error { return err })
				c.put(newSource("db", "1"))
				kittest.Pass(30 * time.Second)
				requireProblems(t, nil)
				c.answers(nil)
				kittest.Pass(time.Minute)
				equal(t, "Secrets", []string{"team-a/db", "vault/db"}, c.names())
				equal(t, "events", nil, c.events())
			})
		})
	}
}

// A webhook denies with a code that usually means something else.
func TestADenialWithAnyCode(t *testing.T) {
	for name, err := range map[string]*apierrors.StatusError{
		"AlreadyExists": apierrors.NewAlreadyExists(secretResource.GroupResource(), ""),
		"Conflict":      apierrors.NewConflict(secretResource.GroupResource(), "", errors.New("no")),
		"NotFound":      apierrors.NewNotFound(secretResource.GroupResource(), ""),
		"Invalid":       apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), "", nil),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.put(newSource("db", "1"))
				c.put(newNamespace("team-a", marked))
				c.answers(func(string, string) error { return err })
				c.run()
				kittest.Pass(time.Hour)
				if n := len(c.writes()); n < 17 || n > 21 {
					t.Errorf("it was tried %d times in an hour", n)
				}
				equal(t, "how many events", 1, len(c.events()))
				requireProblems(t, map[string]int{ReasonFailed: 1})
			})
		})
	}
}

// A ValidatingAdmissionPolicy sees a namespace as it was before it was marked.
func TestAPolicyThatIsBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.put(newNamespace("team-a", marked))
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

// What has become unwanted by the time is not shown, whatever the caches say.
func TestNothingIsShownBecauseACacheIsBehind(t *testing.T) {
	for name, tt := range map[string]struct {
		hold     string
		narrow   func(c *cluster)
		occasion func(c *cluster)
	}{
		"a source that was narrowed": {"secrets", func(c *cluster) { c.put(newSource("db", "1", saying(AnnotationNamespaces, "team-a"))) }, nil},
		"a source that says no":      {"secrets", func(c *cluster) { c.put(newSource("db", "1", saying(usual.Annotation, "false"))) }, nil},
		"a misspelt restriction":     {"secrets", func(c *cluster) { c.put(newSource("db", "1", saying(domain+"secretsync-namespace", "team-a"))) }, nil},
		"a namespace without its mark": {
			"namespaces", func(c *cluster) { c.put(newNamespace("team-a")) }, func(c *cluster) { c.put(newSource("db", "2")) },
		},
		"a namespace without its label": {
			"namespaces", func(c *cluster) { c.put(newNamespace("team-a", marked)) }, func(c *cluster) {
				c.put(newSource("db", "2", saying(AnnotationNamespaceSelector, "env=prod")))
			},
		},
		"a new source, and a namespace without its mark": {
			"namespaces", func(c *cluster) { c.put(newNamespace("team-a")) }, func(c *cluster) { c.put(newSource("new", "2")) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.put(newSource("db", "1", saying(AnnotationNamespaceSelector, "env=prod")))
				c.put(newNamespace("team-a", marked, labeled("env", "prod")))
				if tt.hold == "secrets" {
					c.put(newSource("db", "1"))
				}
				c.run()
				kittest.Pass(time.Minute)
				c.writes()
				c.Hold(tt.hold)
				tt.narrow(c)
				if tt.occasion != nil {
					tt.occasion(c)
				} else {
					c.put(newNamespace("team-b", marked))
				}
				kittest.Pass(time.Minute)
				for _, write := range c.writes() {
					if !strings.HasPrefix(write, "delete") {
						t.Errorf("it has sent %s", write)
					}
				}
			})
		})
	}
}

// Each creation costs a read of the namespace and one of the source, each update with new data one
// of the namespace. Each copy is synced once after a change of its source, and once after the write.
func TestWhatACopyCosts(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		const n = 50
		c.put(newSource("db", "1"))
		for i := range n {
			c.put(newNamespace(fmt.Sprintf("team-%02d", i), marked))
		}
		requests := func() map[string]int {
			counts := map[string]int{}
			for _, request := range []string{"get namespaces", "list secrets", "create secrets", "patch secrets", "delete secrets"} {
				if m := c.Requests(request); m > 0 {
					counts[request] = m
				}
			}
			c.ForgetRequests()
			return counts
		}
		c.run()
		kittest.Pass(time.Minute)
		equal(t, "requests for new copies", map[string]int{"get namespaces": n, "list secrets": n + 2, "create secrets": n}, requests())
		before := len(c.logged.String())
		c.put(newSource("db", "2"))
		kittest.Pass(time.Minute)
		equal(t, "requests for a rotation", map[string]int{"get namespaces": n, "patch secrets": n}, requests())
		looks := map[string]int{}
		for _, found := range regexp.MustCompile(`"(?:Synced|Sync deferred)".* object="([^"]+)"`).FindAllStringSubmatch(c.logged.String()[before:], -1) {
			looks[found[1]]++
		}
		equal(t, "how many copies were looked at", n, len(looks))
		for name, looked := range looks {
			if looked > 2 {
				t.Errorf("%s was looked at %d times", name, looked)
			}
		}
		c.put(newNamespace("team-00", marked, labeled("cattle.io/state", "x")))
		c.put(newSource("db", "2", saying("example.com/note", "x")))
		kittest.Pass(time.Minute)
		equal(t, "requests for what changes no copy", map[string]int{}, requests())
		c.put(newSource("db", "2", saying(usual.Annotation, "no")))
		kittest.Pass(time.Minute)
		equal(t, "requests for deletions", map[string]int{"get namespaces": 2 * n, "list secrets": n, "delete secrets": n}, requests())
	})
}

// The cache of namespaces is older than that of copies: a copy that another process has
// written for a namespace which has just been marked is not deleted.
func TestNothingIsDeletedBecauseACacheIsBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.put(newNamespace("team-a", marked))
		c.run()
		kittest.Pass(time.Minute)
		copied := c.secret("team-a", "db")
		c.put(newNamespace("team-a"))
		kittest.Pass(time.Minute)
		equal(t, "Secrets", []string{"vault/db"}, c.names())
		c.writes()

		c.Hold("namespaces")
		c.put(newNamespace("team-a", marked))
		c.put(copied)
		kittest.Pass(time.Minute)
		equal(t, "writes", nil, c.writes())
		equal(t, "Secrets", []string{"team-a/db", "vault/db"}, c.names())
	})
}

// What looks like a copy is synced again when its namespace appears in the cache.
func TestACopyIsKnownBeforeItsNamespace(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.run()
		c.Hold("namespaces")
		c.put(newNamespace("team-a"))
		c.put(planted("team-a", "db"))
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
		c.put(newNamespace("team-a", marked))
		c.put(newSource("db", "1"))
		c.answers(func(string, string) error { c.Hold("secrets"); return nil }) // the copy is not shown
		c.run()
		equal(t, "writes", []string{"create team-a/db"}, c.writes())
		c.lacks("team-a", "db")
		c.answers(nil)
		c.Expire("secrets")
		c.Release("secrets")
		kittest.Pass(2 * recheckCreated)
		equal(t, "Secrets", []string{"team-a/db", "vault/db"}, c.names())
	})
}

// What admission makes of a copy is reported once, and accepted until the copy or its source
// changes, even if it is something else each time.
func TestAWebhookThatChangesCopies(t *testing.T) {
	nonce := 0
	for name, tt := range map[string]struct {
		alter func(*corev1.Secret)
		words string
	}{
		"their data":                      {func(s *corev1.Secret) { s.Data["password"] = []byte(marker + "webhook") }, "data"},
		"their data, otherwise each time": {func(s *corev1.Secret) { nonce++; s.Data["nonce"] = fmt.Appendf(nil, "%s%d", marker, nonce) }, "data"},
		"what they carry":                 {func(s *corev1.Secret) { s.Annotations = map[string]string{"by": "webhook"} }, "annotations"},
		"that they can be changed":        {immutable, ""},
		"that, and their data":            {func(s *corev1.Secret) { immutable(s); s.Data = nil }, "data"},
		"their type":                      {func(s *corev1.Secret) { s.Type = "example.com/other" }, "type"},
		"their label":                     {func(s *corev1.Secret) { s.Labels = nil }, "labels"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.put(newSource("db", "1"))
				c.put(newNamespace("team-a", marked))
				c.put(newNamespace("team-b"))
				c.alters(tt.alter)
				c.run()
				kittest.Pass(time.Minute)
				c.put(planted("team-b", "bookmark")) // shows how far the cache is
				kittest.Pass(24 * time.Hour)
				equal(t, "writes", []string{"create team-a/db", "delete team-b/bookmark"}, slices.Compact(c.writes()))
				if tt.words == "" {
					requireProblems(t, nil)
					equal(t, "warnings", nil, c.warnings())
				} else {
					equal(t, "warnings", []string{`db Warning: CopyAltered: Namespace "team-a": an admission policy or webhook changed the copy before it was stored: its ` + tt.words +
						`; that is accepted until the copy or its source changes`}, c.warnings())
					requireProblems(t, map[string]int{ReasonAltered: 1})
				}
				c.alters(func(*corev1.Secret) {})
				if tt.words == "labels" { // Then it is somebody else's.
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

// A new process does not know what admission has made of a copy, and asks once.
func TestANewProcessAsksOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.put(newNamespace("team-a", marked))
		c.alters(func(s *corev1.Secret) { s.Data["password"] = []byte(marker + "webhook") })
		stop := c.run()
		kittest.Pass(time.Hour)
		stop()
		c.writes()
		c.run()
		kittest.Pass(24 * time.Hour)
		equal(t, "writes", []string{"update team-a/db"}, c.writes())
	})
}

// An outdated copy is better than none: what cannot be created again is not deleted.
func TestAReplacementThatIsRefused(t *testing.T) {
	for name, change := range map[string]func(c *cluster){
		"of another type":      func(c *cluster) { c.put(newSource("db", "1", ofType("example.com/other"))) },
		"of an immutable copy": func(c *cluster) { c.edit("team-a", "db", immutable); c.put(newSource("db", "2")) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.put(newSource("db", "1"))
				c.put(newNamespace("team-a", marked))
				c.run()
				kittest.Pass(time.Minute)
				c.writes()
				c.Admit(func(a apiserver.Admission) error { // as a quota does, also for dry runs
					if a.Verb != "create" || a.Key.Namespace != "team-a" {
						return nil
					}
					return apierrors.NewForbidden(a.Key.Resource, a.Key.Name, errors.New("exceeded quota: secrets"))
				})
				change(c)
				kittest.Pass(24 * time.Hour)
				equal(t, "data", newSource("db", "1").Data, c.secret("team-a", "db").Data)
				equal(t, "writes", []string{"try team-a/db"}, slices.Compact(c.writes()))
				equal(t, "how many events", 1, len(c.events()))
				requireProblems(t, map[string]int{ReasonFailed: 1})
				c.Admit(nil)
				kittest.Pass(6 * time.Minute)
				equal(t, "data", c.secret("vault", "db").Data, c.secret("team-a", "db").Data)
				equal(t, "type", c.secret("vault", "db").Type, c.secret("team-a", "db").Type)
				requireProblems(t, nil)
			})
		})
	}
}

// requireProblems requires that the metrics count these problems, by reason.
func requireProblems(t *testing.T, want map[string]int) {
	t.Helper()
	if got := problems(t); !maps.Equal(want, got) {
		t.Errorf("the metrics tell of %v, want %v", got, want)
	}
}

// problems returns the problems that the metrics count, by reason.
func problems(t *testing.T) map[string]int {
	t.Helper()
	return gauge(t, "secretsync_troubles")
}

// gauge returns the values of a gauge that are not zero, by label.
func gauge(t *testing.T, name string) map[string]int {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, series := range family.GetMetric() {
			if n := int(series.GetGauge().GetValue()); n > 0 {
				label := ""
				if len(series.GetLabel()) > 0 {
					label = series.GetLabel()[0].GetValue()
				}
				found[label] = n
			}
		}
	}
	return found
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
				c.put(newSource("db", "1"))
				c.put(newNamespace("team-a", marked))
				c.run()
				kittest.Pass(time.Minute)
				copied := c.secret("team-a", "db")
				c.writes()
				if !tt.isWanted {
					c.put(newNamespace("team-a"))
				}
				fight := func(rounds int) {
					for range rounds {
						is := c.secret("team-a", "db")
						if tt.isWanted != (is != nil) {
							kittest.Pass(500 * time.Millisecond)
							continue
						}
						if is == nil {
							is = copied.DeepCopy()
						}
						tt.undo(c, is)
						kittest.Pass(500 * time.Millisecond)
					}
				}
				fight(20)
				if n := len(c.writes()); n > 6 {
					t.Errorf("%d writes in ten seconds", n)
				}
				fight(7200)
				if n := len(c.writes()); n < 10 || n > 25 {
					t.Errorf("%d writes in an hour", n)
				}
				equal(t, "warnings", []string{`db Warning: CopyContested: Namespace "team-a": the copy keeps being reverted, last by ` + tt.who + `; retrying with back-off`}, c.warnings())
				requireProblems(t, map[string]int{ReasonContested: 1})
				kittest.Pass(15 * time.Minute)
				requireProblems(t, nil)
				equal(t, "whether it is there", tt.isWanted, c.secret("team-a", "db") != nil)
				c.events()

				// A change of the source is written without delay.
				fight(20)
				c.put(newSource("db", "2"))
				c.put(newNamespace("team-a", marked))
				kittest.Pass(time.Second)
				equal(t, "data after a rotation", newSource("db", "2").Data, c.secret("team-a", "db").Data)
			})
		})
	}
}

// However many copies are contested, refused or restless, each costs a few writes in the first
// minutes, and then one in five minutes.
func TestNothingIsAStorm(t *testing.T) {
	const n = 30
	for name, storm := range map[string]func(c *cluster, second int){
		"a source that changes each second": func(c *cluster, second int) { c.put(newSource("db", fmt.Sprint(second))) },
		"a source that is re-created each second": func(c *cluster, second int) {
			c.lacks("vault", "db")
			c.put(newSource("db", fmt.Sprint(second)))
		},
		"copies that are refused": func(c *cluster, _ int) {
			c.answers(func(string, string) error {
				return apierrors.NewForbidden(secretResource.GroupResource(), "db", errors.New("no"))
			})
		},
		"copies that are refused, of a source that changes": func(c *cluster, second int) {
			c.answers(func(string, string) error {
				return apierrors.NewForbidden(secretResource.GroupResource(), "db", errors.New("no"))
			})
			c.put(newSource("db", fmt.Sprint(second)))
		},
		"copies that are deleted": func(c *cluster, _ int) {
			for i := range n {
				c.lacks(fmt.Sprintf("team-%03d", i), "db")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				for i := range n {
					c.put(newNamespace(fmt.Sprintf("team-%03d", i), marked))
				}
				c.run()
				last := func(minutes int) float64 {
					c.writes()
					for second := range 60 * minutes {
						storm(c, second)
						kittest.Pass(time.Second)
					}
					return float64(len(c.writes())) / n
				}
				c.put(newSource("db", "first"))
				if got := last(10); got > 12 {
					t.Errorf("%.1f writes for each copy in the first ten minutes", got)
				}
				if got := last(10); got > 2.5 {
					t.Errorf("%.1f writes for each copy in the next ten minutes", got)
				}
				c.answers(nil)
				c.put(newSource("db", "last"))
				kittest.Pass(6 * time.Minute)
				equal(t, "data in the end", newSource("db", "last").Data, c.secret("team-007", "db").Data)
			})
		})
	}
}

// A finalizer holds a copy.
func TestACopyThatAFinalizerHolds(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(c *cluster)
		words  string
		want   []string
	}{
		"while the source rotates": {func(c *cluster) { c.put(newSource("db", "2")) }, "it differs from its source", []string{"team-a/db", "vault/db"}},
		"while it is unwanted":     {func(c *cluster) { c.put(newNamespace("team-a")) }, "it should be gone", []string{"vault/db"}},
		"while it has no source":   {func(c *cluster) { c.lacks("vault", "db") }, "it should be gone", nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.put(newSource("db", "1"))
				c.put(newNamespace("team-a", marked))
				c.run()
				kittest.Pass(time.Minute)
				c.writes()
				c.edit("team-a", "db", func(s *corev1.Secret) { s.Finalizers = []string{"example.com/wait"} })
				c.lacksSoon("team-a", "db")
				kittest.Pass(time.Hour)
				equal(t, "events while it is as its source", nil, c.events())
				tt.change(c)
				kittest.Pass(24 * time.Hour)
				equal(t, "events", []string{`db Warning: CopyTerminating: Namespace "team-a": the copy is stuck in deletion (finalizers: "example.com/wait"), and ` + tt.words}, c.events())
				requireProblems(t, map[string]int{ReasonTerminating: 1})
				equal(t, "writes", nil, c.writes())

				c.lacks("team-a", "db")
				kittest.Pass(time.Minute)
				requireProblems(t, nil)
				equal(t, "Secrets", tt.want, c.names())
			})
		})
	}
}

// An admission webhook can repeat in its message what it was shown, or what was there before,
// which is not known.
func TestAnswersThatTellSecrets(t *testing.T) {
	for name, tt := range map[string]struct{ words, value string }{
		"the data":                 {"password: " + marker + "1", "1"},
		"the data in base64":       {"data: aHVudGVyMi0x", "1"},
		"the data in JSON":         {`{"user":"` + marker + `admin"}`, "1"},
		"a part of it":             {marker, "1"},
		"maybe the data of before": {"no " + marker + "0", "battery-staple"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.put(newNamespace("team-a", marked))
				c.run()
				if tt.value != "1" {
					c.put(newSource("db", "0"))
					kittest.Pass(time.Minute)
				}
				c.answers(func(string, string) error {
					return apierrors.NewForbidden(secretResource.GroupResource(), "db", fmt.Errorf("denied: %s", tt.words))
				})
				c.put(newSource("db", "1", func(s *corev1.Secret) {
					if tt.value != "1" {
						s.Data = map[string][]byte{"password": []byte(tt.value)}
					}
				}))
				kittest.Pass(time.Minute)
				equal(t, "events", []string{`db Warning: CopyFailed: Namespace "team-a": the API server's message is withheld because it may contain data of the Secret; its reason is Forbidden`}, c.events())
				if strings.Contains(c.logged.String(), "aHVudGVyMi0x") {
					t.Error("the log tells a secret in base64")
				}
			})
		})
	}
}

// What is remembered of a copy ends some time after the copy.
func TestCopiesAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.put(newNamespace("team-a", marked))
		c.put(newNamespace("team-b", marked))
		controller, _ := c.start(usual)
		kittest.Pass(time.Minute)
		identities := map[string]types.UID{}
		for _, namespace := range script.All[corev1.Namespace](c.Cluster) {
			identities[namespace.Name] = namespace.UID
		}
		c.put(newNamespace("team-a"))
		c.vanishes("team-b")
		kittest.Pass(20 * time.Minute)
		for _, namespace := range []string{"team-a", "team-b"} {
			name := cache.NewObjectName(namespace, "db")
			if controller.ledger.Find(name, identities[namespace]) != nil || controller.memories.of(name) != (memory{}) {
				t.Errorf("the copy in %s is remembered", namespace)
			}
		}
	})
}

// A message of the API server is compared with the whole of a large Secret in no time.
func BenchmarkLeaks(b *testing.B) {
	secret := &corev1.Secret{Data: map[string][]byte{"blob": slices.Repeat([]byte("0123456789abcdef"), 1<<16)}}
	message := strings.Repeat("no byte of it is here; ", 22)
	for b.Loop() {
		if leaks(message, secret) {
			b.Fatal("it is there")
		}
	}
}
