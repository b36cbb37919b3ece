package secretsync

import (
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
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kittest"
)

func TestCopies(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.put(newSource("unmarked", "1", func(s *corev1.Secret) { s.Annotations = nil }))
		c.put(newSource("refused", "1", func(s *corev1.Secret) { s.Annotations[usual.Annotation] = "false" }))
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

		source, copied := c.secret("vault", "db"), c.secret("team-a", "db")
		equal(t, "data", source.Data, copied.Data)
		equal(t, "metadata", metav1.ObjectMeta{
			Namespace: "team-a", Name: "db", UID: copied.UID, ResourceVersion: copied.ResourceVersion,
			Labels: map[string]string{LabelSourceNamespace: "vault"},
			Annotations: map[string]string{
				AnnotationSourceName: "db", AnnotationSourceUID: string(source.UID), AnnotationInstance: usual.Annotation,
				AnnotationNamespace: "team-a", AnnotationSourceNamespaceUID: c.uid("vault"),
			},
		}, copied.ObjectMeta)

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
	for _, tt := range []struct {
		name   string
		change func(c *cluster)
		writes []string
		events []string
	}{
		{"a rotation", func(c *cluster) { sources(c, "2") }, []string{"update team-a/db"}, nil},
		{"what becomes immutable", func(c *cluster) { sources(c, "2", immutable) }, []string{"update team-a/db"}, nil},
		{
			"a new type", func(c *cluster) { sources(c, "1", ofType("example.com/other")) },
			[]string{"create team-a/db", "delete team-a/db"},
			[]string{`db Normal: CopyReplaced: Namespace "team-a": deleting and re-creating the copy, because its type has changed`},
		},
		{"a source without its annotation", func(c *cluster) { sources(c, "1", func(s *corev1.Secret) { s.Annotations = nil }) }, []string{"delete team-a/db"}, []string{`db Normal: CopyDeleted: Namespace "team-a": deleted the copy, because its source is no longer marked`}},
		{"a source that goes", func(c *cluster) { c.lacks(secretResource, "vault", "db") }, []string{"delete team-a/db"}, []string{`db Normal: CopyDeleted: Namespace "team-a": deleted the copy, because its source is gone`}},
		{"a source that is going", func(c *cluster) { sources(c, "1", func(s *corev1.Secret) { ending(s) }) }, []string{"delete team-a/db"}, []string{`db Normal: CopyDeleted: Namespace "team-a": deleted the copy, because its source is being deleted`}},
		{"a namespace without its annotation", func(c *cluster) { c.put(newNamespace("team-a")) }, []string{"delete team-a/db"}, []string{`db Normal: CopyDeleted: Namespace "team-a": deleted the copy, because the namespace is no longer marked`}},
		{"a namespace that says no", func(c *cluster) {
			c.put(newNamespace("team-a", func(o metav1.Object) { o.SetAnnotations(map[string]string{usual.Annotation: "false"}) }))
		}, []string{"delete team-a/db"}, []string{`db Normal: CopyDeleted: Namespace "team-a": deleted the copy, because the namespace is no longer marked`}},
		{"a namespace that ends", func(c *cluster) { c.put(newNamespace("team-a", marked, ending)) }, nil, nil},
		{"a copy that is edited", func(c *cluster) {
			c.edit("team-a", "db", func(s *corev1.Secret) { s.Data["password"], s.Data["more"] = []byte("x"), []byte("y") })
		}, []string{"update team-a/db"}, nil},
		{
			"a copy that is made immutable", func(c *cluster) { c.edit("team-a", "db", immutable) },
			[]string{"create team-a/db", "delete team-a/db"},
			[]string{`db Normal: CopyReplaced: Namespace "team-a": deleting and re-creating the copy, because it is immutable`},
		},
		{"a copy that is deleted", func(c *cluster) { c.lacks(secretResource, "team-a", "db") }, []string{"create team-a/db"}, nil},
		{"a copy with something of another's", func(c *cluster) {
			c.edit("team-a", "db", func(s *corev1.Secret) { s.Labels["team"], s.Annotations["note"] = "a", "b" })
		}, nil, nil},
		{"a source that is re-created", func(c *cluster) { c.lacks(secretResource, "vault", "db"); sources(c, "1") }, []string{"update team-a/db"}, nil},
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
					c.Hold() // so that it sees several changes at once
					tt.change(c)
					c.Release()
					if whileDown {
						stop = c.run()
					}
					kittest.Pass(time.Minute)
					equal(t, "writes", tt.writes, c.writes())
					equal(t, "events", tt.events, c.events())
					stop()
				})
			})
		}
	}
}

func TestANameThatIsTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.put(newNamespace("team-a", marked))
		c.put(newNamespace("team-b", marked))
		c.put(foreign("team-a", "db"))
		stop := c.run()
		kittest.Pass(time.Hour)
		warning := `db Warning: ErrResourceExists: Namespace "team-a": a Secret of that name already exists and is not managed by secretsync`
		equal(t, "events", []string{warning}, c.events())
		equal(t, "writes", []string{"create team-a/db", "create team-b/db"}, c.writes())

		c.put(newSource("db", "2"))
		kittest.Pass(time.Hour)
		c.put(newNamespace("team-a"))
		c.put(newNamespace("team-b"))
		kittest.Pass(time.Hour)
		c.put(newNamespace("team-a", marked))
		kittest.Pass(time.Hour)
		equal(t, "what was there", foreign("team-a", "db").Data, c.secret("team-a", "db").Data)
		deleted := `db Normal: CopyDeleted: Namespace "team-b": deleted the copy, because the namespace is no longer marked`
		equal(t, "events", []string{deleted, warning}, c.events()) // because it is wanted again

		c.lacks(secretResource, "team-a", "db")
		kittest.Pass(2 * retryTaken)
		equal(t, "the copy when there is room", c.secret("vault", "db").Data, c.secret("team-a", "db").Data)
		stop()
	})
}

// A copy that someone has copied to another name, or whose label someone has removed,
// belongs to them.
func TestWhatIsNoCopyAnyMore(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.put(newNamespace("team-a", marked))
		stop := c.run()
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
		equal(t, "events", []string{"db-for-tests Warning: NotACopy: " + notMade}, slices.DeleteFunc(c.events(), func(event string) bool { return !strings.Contains(event, ReasonNotMade) }))

		c.put(newSource("db-for-tests", "2"))
		c.put(newNamespace("team-a", marked))
		kittest.Pass(time.Hour)
		equal(t, "what they made their own", newSource("db", "1").Data, c.secret("team-a", "db-for-tests").Data)
		warning := ` Warning: ErrResourceExists: Namespace "team-a": a Secret of that name already exists and is not managed by secretsync`
		equal(t, "events", []string{"db" + warning, "db-for-tests" + warning}, c.events())
		stop()
	})
}

// Someone applies what kubectl has read of a copy to another namespace, as it is.
func TestACopyOfACopy(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.put(newNamespace("team-a", marked))
		c.put(newNamespace("team-b"))
		stop := c.run()
		kittest.Pass(time.Minute)
		theirs := c.secret("team-a", "db")
		theirs.Namespace, theirs.UID, theirs.ResourceVersion = "team-b", "", ""
		c.writes()
		c.put(theirs)
		kittest.Pass(time.Hour)
		equal(t, "Secrets", []string{"team-a/db", "team-b/db", "vault/db"}, c.names())
		equal(t, "writes", nil, c.writes())
		equal(t, "events", []string{"db Warning: NotACopy: " + notMade}, c.events())
		requireProblems(t, nil) // It is no copy.
		stop()
	})
}

func TestOneNamespaceThatRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		for i := range 20 {
			c.put(newNamespace(fmt.Sprintf("team-%02d", i), marked))
		}
		quota := apierrors.NewForbidden(secretResource.GroupResource(), "db", fmt.Errorf("exceeded quota: small"))
		c.answers(func(_, namespace string) error {
			if namespace == "team-07" {
				return quota
			}
			return nil
		})
		stop := c.run()
		kittest.Pass(time.Second)
		equal(t, "how many Secrets", 20, len(c.names()))
		kittest.Pass(time.Hour)
		equal(t, "events", []string{`db Warning: CopyFailed: Namespace "team-07": creating the copy: secrets "db" is forbidden: exceeded quota: small`}, c.events())
		if got := strings.Count(c.logged.String(), "Sync failed"); got < 60 || got > 90 {
			t.Errorf("it was tried %d times in an hour", got)
		}
		c.answers(func(string, string) error { return nil })
		kittest.Pass(2 * time.Minute)
		equal(t, "how many Secrets", 21, len(c.names()))
		stop()
	})
}

// The cache does not show that a namespace is being deleted: a copy that is refused for that
// reason is retried rarely, and that is no news about the copy.
func TestANamespaceThatEndsUnseen(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newNamespace("team-a", marked))
		stop := c.run()
		c.Hold()
		c.put(newNamespace("team-a", marked, ending))
		c.put(newSource("db", "1"))
		c.Flush(secretResource)
		kittest.Pass(10 * time.Second)
		equal(t, "how many attempts in ten seconds", 1, len(c.writes()))
		kittest.Pass(time.Hour)
		if n := len(c.writes()); n < 50 || n > 70 {
			t.Errorf("%d attempts in an hour", n)
		}
		c.Release()
		kittest.Pass(time.Second)
		c.writes()
		kittest.Pass(time.Hour)
		equal(t, "writes when the cache shows it", nil, c.writes())
		equal(t, "events", nil, c.events())
		requireProblems(t, nil)

		c.lacks(namespacesGVR, "", "team-a")
		c.put(newNamespace("team-a", marked))
		kittest.Pass(time.Second)
		equal(t, "Secrets when it is re-created", []string{"team-a/db", "vault/db"}, c.names())
		stop()
	})
}

// What the API server calls invalid is retried rarely.
func TestWhatIsInvalidIsNotTriedOften(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.put(newNamespace("team-a", marked))
		tried := 0
		c.answers(func(_, namespace string) error {
			if namespace != "team-a" {
				return nil
			}
			tried++
			return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), "db", nil)
		})
		stop := c.run()
		kittest.Pass(time.Hour)
		if tried < 12 || tried > 15 { // a few in the beginning, then one every five minutes
			t.Errorf("it was tried %d times in an hour", tried)
		}
		equal(t, "how many events", 1, len(c.events()))
		c.answers(func(string, string) error { return nil })
		kittest.Pass(2 * retryInvalid)
		equal(t, "Secrets", []string{"team-a/db", "vault/db"}, c.names())
		stop()
	})
}

// An admission webhook may repeat in its message what it was shown, or what was there before,
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

// After a change of a source, each of its copies is synced once, and once more after the
// write.
func TestHowOftenACopyIsLookedAt(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		for i := range 50 {
			c.put(newNamespace(fmt.Sprintf("team-%02d", i), marked))
		}
		stop := c.run()
		kittest.Pass(time.Minute)
		c.writes()
		before := len(c.logged.String())
		c.put(newSource("db", "2"))
		kittest.Pass(time.Minute)
		equal(t, "how many writes", 50, len(c.writes()))
		looks := map[string]int{}
		for _, found := range regexp.MustCompile(`"(?:Synced|Not yet)".* object="([^"]+)"`).FindAllStringSubmatch(c.logged.String()[before:], -1) {
			looks[found[1]]++
		}
		equal(t, "how many copies were looked at", 50, len(looks))
		for name, n := range looks {
			if n > 2 {
				t.Errorf("%s was looked at %d times", name, n)
			}
		}
		stop()
	})
}

// The cache of namespaces is older than that of copies: a copy that another process has
// written for a namespace which has just been marked is not deleted.
func TestNothingIsDeletedBecauseACacheIsBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.put(newNamespace("team-a", marked))
		stop := c.run()
		kittest.Pass(time.Minute)
		copied := c.secret("team-a", "db")
		c.put(newNamespace("team-a"))
		kittest.Pass(time.Minute)
		equal(t, "Secrets", []string{"vault/db"}, c.names())
		c.writes()

		c.Hold()
		c.put(newNamespace("team-a", marked))
		c.put(copied)
		c.Flush(secretResource)
		kittest.Pass(time.Minute)
		equal(t, "writes", nil, c.writes())
		equal(t, "Secrets", []string{"team-a/db", "vault/db"}, c.names())
		c.Release()
		stop()
	})
}

// What looks like a copy is synced again when its namespace appears in the cache.
func TestACopyIsKnownBeforeItsNamespace(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		stop := c.run()
		c.Hold()
		c.put(newNamespace("team-a"))
		c.put(newSource("db", "1", func(s *corev1.Secret) {
			s.Namespace, s.Labels = "team-a", map[string]string{LabelSourceNamespace: "vault"}
			s.Annotations = map[string]string{AnnotationNamespace: "team-a"}
		}))
		c.Flush(secretResource)
		kittest.Pass(time.Minute)
		equal(t, "Secrets", []string{"team-a/db", "vault/db"}, c.names())
		c.Release()
		kittest.Pass(time.Minute)
		equal(t, "Secrets", []string{"vault/db"}, c.names())
		stop()
	})
}

// A copy is deleted before the cache shows it, and the watch breaks off at the same time: no
// event ever says so.
func TestACopyThatVanishesUnseen(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newNamespace("team-a", marked))
		c.put(newSource("other", "1"))
		stop := c.run()
		c.answers(func(string, string) error { c.Hold(); return nil }) // the copy is not shown
		c.put(newSource("db", "1"))
		kittest.Pass(0)
		equal(t, "writes", []string{"create team-a/db", "create team-a/other"}, c.writes())
		c.lacks(secretResource, "team-a", "db")
		c.Expire(secretResource)
		c.Release()
		kittest.Pass(2 * recheckCreated)
		equal(t, "Secrets", []string{"team-a/db", "team-a/other", "vault/db", "vault/other"}, c.names())
		stop()
	})
}

// That a webhook changes a copy is reported once, and the copy is written again at
// growing intervals, even if the webhook makes a different change each time.
func TestAWebhookThatChangesCopies(t *testing.T) {
	nonce := 0
	for name, tt := range map[string]struct {
		alter func(*corev1.Secret)
		words string
	}{
		"their data":                      {func(s *corev1.Secret) { s.Data["password"] = []byte(marker + "webhook") }, "data"},
		"their data, otherwise each time": {func(s *corev1.Secret) { nonce++; s.Data["nonce"] = fmt.Appendf(nil, "%s%d", marker, nonce) }, "data"},
		"what they carry":                 {func(s *corev1.Secret) { s.Annotations = map[string]string{"by": "webhook"} }, "annotations"},
		"that they can be changed":        {func(s *corev1.Secret) { immutable(s); s.Data = nil }, "data, immutability"},
		"their type":                      {func(s *corev1.Secret) { s.Type = "example.com/other" }, "type"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.put(newSource("db", "1"))
				c.put(newNamespace("team-a", marked))
				c.alters(tt.alter)
				stop := c.run()
				kittest.Pass(10 * time.Second)
				if n := len(c.writes()); n > 6 { // a replacement is two writes
					t.Errorf("%d writes in ten seconds", n)
				}
				kittest.Pass(time.Hour)
				if n := len(c.writes()); n < 10 || n > 40 {
					t.Errorf("%d writes in an hour", n)
				}
				var warnings []string
				for _, event := range c.events() {
					if strings.Contains(event, "Warning") {
						warnings = append(warnings, event)
					}
				}
				equal(t, "warnings", []string{`db Warning: CopyAltered: Namespace "team-a": an admission policy or webhook changed the copy before it was stored: its ` + tt.words + `; secretsync waits longer before each retry`}, warnings)
				requireProblems(t, map[string]int{ReasonAltered: 1})

				c.alters(func(*corev1.Secret) {})
				kittest.Pass(10 * time.Minute)
				equal(t, "data without the webhook", c.secret("vault", "db").Data, c.secret("team-a", "db").Data)
				requireProblems(t, nil)
				c.writes()
				kittest.Pass(time.Hour)
				equal(t, "writes", nil, c.writes())
				stop()
			})
		})
	}
}

// A webhook that removes the label makes the copy someone else's.
func TestAWebhookThatTakesOffTheLabel(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.put(newNamespace("team-a", marked))
		c.alters(func(s *corev1.Secret) { s.Labels = nil })
		stop := c.run()
		kittest.Pass(time.Minute)
		bookmark := foreign("team-a", "bookmark") // shows how far the cache is
		bookmark.Labels = map[string]string{LabelSourceNamespace: "vault"}
		bookmark.Annotations = map[string]string{AnnotationSourceName: "other"}
		c.put(bookmark)
		kittest.Pass(time.Hour)
		if n := len(c.writes()); n > 4 {
			t.Errorf("%d writes", n)
		}
		equal(t, "events", []string{
			"bookmark Warning: NotACopy: " + notMade,
			`db Warning: CopyAltered: Namespace "team-a": an admission policy or webhook changed the copy before it was stored: its labels; secretsync waits longer before each retry`,
			`db Warning: ErrResourceExists: Namespace "team-a": a Secret of that name already exists and is not managed by secretsync`,
		}, c.events())
		requireProblems(t, map[string]int{ReasonNameTaken: 1})
		stop()
	})
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
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, family := range families {
		if family.GetName() != "secretsync_troubles" {
			continue
		}
		for _, series := range family.GetMetric() {
			if n := int(series.GetGauge().GetValue()); n > 0 {
				found[series.GetLabel()[0].GetValue()] = n
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
			s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: fieldManager, Time: ptr.To(metav1.Now())}, {Manager: "gitops", Time: ptr.To(metav1.Now())}}
			c.put(s)
		}},
		"about whether it is there":       {true, "someone", func(c *cluster, s *corev1.Secret) { c.lacks(secretResource, s.Namespace, s.Name) }},
		"about whether it should be gone": {false, "someone", func(c *cluster, s *corev1.Secret) { c.put(s) }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.put(newSource("db", "1"))
				c.put(newNamespace("team-a", marked))
				stop := c.run()
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
							kittest.Pass(100 * time.Millisecond)
							continue
						}
						if is == nil {
							is = copied.DeepCopy()
						}
						tt.undo(c, is)
						kittest.Pass(100 * time.Millisecond)
					}
				}
				fight(100)
				if n := len(c.writes()); n > 6 {
					t.Errorf("%d writes in ten seconds", n)
				}
				fight(36000)
				if n := len(c.writes()); n < 10 || n > 25 {
					t.Errorf("%d writes in an hour", n)
				}
				events := slices.DeleteFunc(c.events(), func(event string) bool { return strings.Contains(event, ReasonDeleted) })
				equal(t, "events", []string{`db Warning: CopyContested: Namespace "team-a": the copy keeps being reverted, last by ` + tt.who + `; secretsync waits longer before each repair`}, events)
				requireProblems(t, map[string]int{ReasonContested: 1})
				kittest.Pass(15 * time.Minute)
				requireProblems(t, nil)
				equal(t, "whether it is there", tt.isWanted, c.secret("team-a", "db") != nil)
				c.events()

				// A change of the source is written without delay.
				fight(100)
				c.put(newSource("db", "2"))
				c.put(newNamespace("team-a", marked))
				kittest.Pass(time.Second)
				equal(t, "data after a rotation", newSource("db", "2").Data, c.secret("team-a", "db").Data)
				stop()
			})
		})
	}
}

// Many altered copies share one limit of retries.
func TestAWebhookThatChangesManyCopies(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		for i := range 500 {
			c.put(newNamespace(fmt.Sprintf("team-%03d", i), marked))
		}
		c.alters(func(s *corev1.Secret) { s.Data["password"] = []byte("x") })
		stop := c.run()
		kittest.Pass(time.Minute)
		c.writes()
		kittest.Pass(time.Minute)
		if n := len(c.writes()); n > 130 {
			t.Errorf("%d writes in a minute", n)
		}
		c.put(newSource("tls", "1", func(s *corev1.Secret) { s.Data = map[string][]byte{"password": []byte("x")} }))
		kittest.Pass(10 * time.Second)
		equal(t, "how many copies are right", 500, len(slices.DeleteFunc(c.names(), func(name string) bool { return !strings.HasSuffix(name, "/tls") || strings.HasPrefix(name, "vault/") })))
		stop()
	})
}

// Two instances with the same source namespace leave each other's copies alone.
func TestTwoInstances(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		other := usual
		other.Annotation = "example.com/other"
		both := func(obj metav1.Object) {
			obj.SetAnnotations(map[string]string{usual.Annotation: "yes", other.Annotation: "yes"})
		}
		c.put(newSource("db", "1"))
		c.put(newNamespace("team-a", marked))
		stop := c.run()
		kittest.Pass(time.Minute)
		c.writes()
		stopOther := c.runAs(other)
		kittest.Pass(time.Hour)
		equal(t, "writes", nil, c.writes())
		equal(t, "events", nil, c.events())

		// Both want a copy of the same name; the first one has it.
		c.put(newSource("db", "2", func(s *corev1.Secret) { both(s) }))
		c.put(newNamespace("team-a", both))
		kittest.Pass(time.Hour)
		equal(t, "writes", []string{"update team-a/db"}, c.writes())
		equal(t, "events", []string{`db Warning: ErrResourceExists: Namespace "team-a": a copy of that name already exists and belongs to another instance of secretsync, "example.com/share"`}, c.events())
		equal(t, "data", newSource("db", "2").Data, c.secret("team-a", "db").Data)

		// When the first one no longer wants it, the second one gets it.
		c.put(newNamespace("team-a", func(obj metav1.Object) { obj.SetAnnotations(map[string]string{other.Annotation: "yes"}) }))
		kittest.Pass(time.Hour)
		equal(t, "writes", []string{"create team-a/db", "delete team-a/db"}, c.writes())
		equal(t, "whose it is", other.Annotation, c.secret("team-a", "db").Annotations[AnnotationInstance])
		stop()
		stopOther()
	})
}

// A finalizer holds a copy.
func TestACopyThatAFinalizerHolds(t *testing.T) {
	hold := func(s *corev1.Secret) { s.Finalizers = []string{"example.com/wait"}; ending(s) }
	for name, tt := range map[string]struct {
		change func(c *cluster)
		words  string
		want   []string
	}{
		"while the source rotates": {func(c *cluster) { c.put(newSource("db", "2")) }, "it differs from its source", []string{"team-a/db", "vault/db"}},
		"while it is unwanted":     {func(c *cluster) { c.put(newNamespace("team-a")) }, "it should be gone", []string{"vault/db"}},
		"while it has no source":   {func(c *cluster) { c.lacks(secretResource, "vault", "db") }, "it should be gone", nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.put(newSource("db", "1"))
				c.put(newNamespace("team-a", marked))
				stop := c.run()
				kittest.Pass(time.Minute)
				c.writes()
				c.edit("team-a", "db", hold)
				kittest.Pass(time.Hour)
				equal(t, "events while it is as its source", nil, c.events())
				tt.change(c)
				kittest.Pass(24 * time.Hour)
				equal(t, "events", []string{`db Warning: CopyTerminating: Namespace "team-a": the copy is being deleted, but finalizers ("example.com/wait") hold it, and ` + tt.words}, c.events())
				requireProblems(t, map[string]int{ReasonTerminating: 1})
				equal(t, "writes", nil, c.writes())

				c.lacks(secretResource, "team-a", "db")
				kittest.Pass(time.Minute)
				requireProblems(t, nil)
				equal(t, "Secrets", tt.want, c.names())
				stop()
			})
		})
	}
}
