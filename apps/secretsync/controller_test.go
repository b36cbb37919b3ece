package main

import (
	"bytes"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kittest"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
	"nicoleh.io/k8s-controller/pkg/kittest/startup"
)

const isTaken = `db Warning: ErrResourceExists: Namespace "team-a": creating the copy: secrets "db" already exists`

// byHandFor is what each Warning about frozen copies ends with.
func byHandFor(selected string) string {
	return "To delete them by hand: kubectl delete secrets " + selected + " --selector=controller.nicoleh.io/secretsync-source-namespace=vault"
}

const ofDB = "--all-namespaces --field-selector=metadata.name=db,metadata.namespace!=vault"

func TestCopies(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"), newSource("unmarked", "1", unmarked), newSource("refused", "1", listing("false")))
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
		equal(t, "annotations", map[string]string{AnnotationMadeFor: "team-a/db"}, copied.Annotations)

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
		return []string{`db Normal: CopyReplaced: Namespace "team-a": deleting and creating the copy again, because ` + why}
	}
	replaces := []string{"create team-a/db", "delete team-a/db", "try team-a/db"}
	for _, tt := range []struct {
		name    string
		isLater bool // it follows only after a minute
		change  func(c *cluster)
		writes  []string
		events  []string
	}{
		{"a rotation", false, func(c *cluster) { c.put(newSource("db", "2")) }, []string{"update team-a/db"}, nil},
		{"fewer keys", false, func(c *cluster) {
			c.put(newSource("db", "1", func(s *corev1.Secret) { s.Data = map[string][]byte{"other": []byte(marker)} }))
		}, []string{"update team-a/db"}, nil},
		{"a new type", false, func(c *cluster) { c.put(newSource("db", "1", ofType("example.com/other"))) }, replaces, replaced("its type has changed")},
		{"a source that says false", false, func(c *cluster) { c.put(newSource("db", "1", listing("false"))) }, []string{"delete team-a/db"}, deleted("its source says false")},
		{"a namespace that says false", false, func(c *cluster) { c.put(newNamespace("team-a", saying("false"))) }, []string{"delete team-a/db"}, deleted("its namespace says false")},
		{"a source for others", true, func(c *cluster) { c.put(newSource("db", "1", listing("team-b"))) }, []string{"delete team-a/db"}, deleted("its source does not list the namespace")},
		{"a source that goes", true, func(c *cluster) { c.lacks(vault, "db") }, []string{"delete team-a/db"}, deleted("its source was deleted")},
		{"a source that is gone for a moment, twice", false, func(c *cluster) { // Many tools change a Secret by deleting it and creating another one.
			c.Release("secrets")
			for range 2 {
				c.lacks(vault, "db")
				kittest.Pass(50 * time.Second)
				c.put(newSource("db", "2"))
				kittest.Pass(50 * time.Second)
			}
		}, []string{"update team-a/db"}, nil},
		{"a list that is narrower for a moment", false, func(c *cluster) {
			c.put(newSource("db", "1", listing("team-b")))
			c.Release("secrets")
			kittest.Pass(50 * time.Second)
			c.put(newSource("db", "1"))
		}, nil, nil},
		{"annotations that are gone for a moment", false, func(c *cluster) { // Terraform and Argo CD remove annotations that they do not know.
			c.put(newNamespace("team-a"), newSource("db", "1", unmarked))
			c.Release("secrets")
			kittest.Pass(time.Millisecond)
			c.put(newNamespace("team-a", marked), newSource("db", "1"))
		}, nil, nil},
		{"a copy that is edited", false, func(c *cluster) {
			c.edit("team-a", "db", func(s *corev1.Secret) { s.Data["password"], s.Data["more"] = []byte("x"), []byte("y") })
		}, []string{"update team-a/db"}, nil},
		{"a copy that is made immutable, and a rotation", false, func(c *cluster) {
			c.edit("team-a", "db", immutable)
			c.Release("secrets") // Sources and copies are in two caches: the rotation comes last.
			kittest.Pass(time.Second)
			c.put(newSource("db", "2"))
		}, replaces, replaced("it is immutable")},
		{"a copy that is deleted", false, func(c *cluster) { c.lacks("team-a", "db") }, []string{"create team-a/db"}, nil},
		{"a copy with something of another's", false, func(c *cluster) {
			c.edit("team-a", "db", func(s *corev1.Secret) { s.Labels["team"], s.Annotations["note"] = "a", "b" })
		}, nil, nil},
		{"that, and a rotation", false, func(c *cluster) {
			c.edit("team-a", "db", func(s *corev1.Secret) { s.Labels["team"], s.Annotations["note"] = "a", "b" })
			c.Release("secrets")
			kittest.Pass(time.Second)
			c.put(newSource("db", "2"))
		}, []string{"update team-a/db"}, nil},
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
					kittest.Pass(50 * time.Second)
					if tt.isLater {
						equal(t, "writes in less than a minute", nil, c.writes())
						kittest.Pass(grace)
					}
					equal(t, "writes", tt.writes, c.writes())
					equal(t, "events", tt.events, slices.DeleteFunc(c.events(), func(event string) bool { return strings.Contains(event, ReasonMarkMissing) }))
					if copied, source := c.secret("team-a", "db"), c.secret(vault, "db"); copied != nil {
						equal(t, "data", source.Data, copied.Data)
						equal(t, "type", source.Type, copied.Type)
						if tt.name == "that, and a rotation" {
							equal(t, "what others have added", "a b", copied.Labels["team"]+" "+copied.Annotations["note"])
						}
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
		"much":           {"blob": bytes.Repeat([]byte("x"), 100_000)},
	}
	for before, old := range contents {
		for after, wanted := range contents {
			for kind, alter := range map[string]func(*corev1.Secret){"": func(*corev1.Secret) {}, ", immutable": immutable, ", of another type": ofType("example.com/other")} {
				t.Run(before+" becomes "+after+kind, func(t *testing.T) {
					inBubble(t, func(t *testing.T, c *cluster) {
						with := func(data map[string][]byte) *corev1.Secret {
							return newSource("db", "", func(s *corev1.Secret) { s.Data = data })
						}
						made := planted("team-a", "db")
						made.Data = old
						alter(made)
						c.put(newNamespace("team-a", marked), made, with(wanted))
						c.run()
						kittest.Pass(time.Minute)
						equal(t, "data", inWords(wanted), inWords(c.secret("team-a", "db").Data))
						c.put(with(old))
						kittest.Pass(time.Second)
						c.put(with(wanted))
						kittest.Pass(time.Minute)
						equal(t, "data after a moment with other data", inWords(wanted), inWords(c.secret("team-a", "db").Data))
						if !isImmutable(c.secret("team-a", "db")) {
							c.edit("team-a", "db", func(s *corev1.Secret) { s.Data = old })
							kittest.Pass(time.Minute)
						}
						equal(t, "data after somebody has changed it", inWords(wanted), inWords(c.secret("team-a", "db").Data))
						equal(t, "warnings", nil, c.warnings())
					})
				})
			}
		}
	}
}

// inWords returns data as package cmp compares it quickly.
func inWords(data map[string][]byte) string { return fmt.Sprintf("%q", data) }

// What is silent, unclear or gone keeps all copies as they are, in two processes, until it is clear, or says false.
// Each is told once by each process.
func TestSilenceFreezes(t *testing.T) {
	const untilClear = "controller.nicoleh.io/secretsync is clear: "
	for name, tt := range map[string]struct {
		change func(c *cluster)
		told   string
		reason string
		clear  func(c *cluster)
	}{
		"a source without its annotation": {
			func(c *cluster) { c.put(newSource("db", "2", unmarked)) },
			`db Warning: MarkMissing: Annotation controller.nicoleh.io/secretsync is gone, so its copies are neither changed nor deleted. Set it again, or to "false" to delete them. ` + byHandFor(ofDB),
			ReasonMarkMissing, func(c *cluster) { c.put(newSource("db", "2")) },
		},
		"a namespace without its annotation": {
			func(c *cluster) { c.put(newNamespace("team-a"), newSource("db", "2", listing("team-a"))) },
			`team-a Warning: MarkMissing: Annotation controller.nicoleh.io/secretsync is gone, so the copies here are neither changed nor deleted. Set it again, or to "false" to delete them. ` + byHandFor("--namespace=team-a"),
			ReasonMarkMissing, func(c *cluster) { c.put(newNamespace("team-a", marked)) },
		},
		"an unclear source": {
			func(c *cluster) { c.put(newSource("db", "2", listing("yes"))) },
			`db Warning: UnclearAnnotation: No copy is created, changed or deleted until annotation ` + untilClear +
				`"yes" in its value is neither the name of a namespace nor a pattern such as "web-*", nor is all of it "false". ` + byHandFor(ofDB),
			ReasonUnclear, func(c *cluster) { c.put(newSource("db", "2")) },
		},
		"a source of a type that is not copied": {
			func(c *cluster) { c.put(newSource("db", "2", ofType("helm.sh/release.v1"))) },
			`db Warning: UnclearAnnotation: No copy is created, changed or deleted until annotation ` + untilClear + `Secrets of type helm.sh/release.v1 are not copied. ` + byHandFor(ofDB),
			ReasonUnclear, func(c *cluster) { c.put(newSource("db", "2")) },
		},
		"an unclear namespace": {
			func(c *cluster) {
				c.put(newNamespace("team-a", saying("disabled")), newSource("db", "2", listing("team-a")))
			},
			`team-a Warning: UnclearAnnotation: No copy here is created, changed or deleted until annotation ` + untilClear + `"disabled" is neither "true" nor "false". ` + byHandFor("--namespace=team-a"),
			ReasonUnclear, func(c *cluster) { c.put(newNamespace("team-a", marked)) },
		},
		"a source namespace that is gone": {
			func(c *cluster) { c.vanishes(vault) },
			`vault Warning: SourceNamespaceGone: The namespace of the sources is gone or being deleted, so their copies are neither changed nor deleted. Create it and the sources again. ` + byHandFor("--all-namespaces --field-selector=metadata.namespace!=vault"),
			ReasonSourceNamespaceGone, func(c *cluster) { c.put(newNamespace(vault), newSource("db", "2")) },
		},
		"a source namespace that is being deleted": {
			func(c *cluster) { c.put(newNamespace(vault, ending)); c.lacks(vault, "db") },
			`vault Warning: SourceNamespaceGone: The namespace of the sources is gone or being deleted, so their copies are neither changed nor deleted. Create it and the sources again. ` + byHandFor("--all-namespaces --field-selector=metadata.namespace!=vault"),
			ReasonSourceNamespaceGone, func(c *cluster) { c.vanishes(vault); c.put(newNamespace(vault), newSource("db", "2")) },
		},
		"a source namespace that was created again without the source": {
			func(c *cluster) { c.vanishes(vault); c.put(newNamespace(vault)) },
			`db Warning: SourceNamespaceGone: The source is missing, and its namespace is younger than a copy, so its copies are neither changed nor deleted. Create it again. ` + byHandFor(ofDB),
			ReasonSourceNamespaceGone, func(c *cluster) { c.put(newSource("db", "2")) },
		},
	} {
		for _, whileDown := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, while down: %t", name, whileDown), func(t *testing.T) {
				inBubble(t, func(t *testing.T, c *cluster) {
					c.put(newSource("private", "1", unmarked), newNamespace("team-c"))
					stop := c.begin()
					if whileDown {
						stop()
					}
					c.Hold("secrets")
					c.Hold("namespaces")
					tt.change(c)
					c.Release("namespaces")
					c.Release("secrets")
					want := []string{tt.told}
					if !whileDown {
						kittest.Pass(24 * time.Hour)
						stop()
						want = append(want, tt.told)
					}
					c.run()
					kittest.Pass(24 * time.Hour)
					equal(t, "writes", nil, c.writes())
					equal(t, "events", want, slices.DeleteFunc(c.events(), func(event string) bool {
						return event != tt.told && strings.Contains(event, "is gone or being deleted") // for a moment
					}))
					requireProblems(t, map[string]int64{tt.reason: 1})
					equal(t, "data", newSource("db", "1").Data, c.secret("team-a", "db").Data)

					tt.clear(c)
					kittest.Pass(time.Minute)
					requireProblems(t, nil)
					equal(t, "data when it is clear", newSource("db", "2").Data, c.secret("team-a", "db").Data)
					c.put(newSource("db", "2", listing("false")))
					kittest.Pass(time.Minute)
					equal(t, "the copy when the source says false", nil, c.secret("team-a", "db"))
				})
			})
		}
	}
}

// A copy that is deleted by hand while it is frozen does not come back, and a new one is not made.
func TestNothingIsCreatedWhileItIsFrozen(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.begin()
		c.put(newSource("db", "1", unmarked), newNamespace("team-b", marked))
		kittest.Pass(time.Minute)
		c.lacks("team-a", "db")
		kittest.Pass(time.Hour)
		equal(t, "writes", nil, c.writes())
		requireProblems(t, nil)
		c.put(newSource("db", "1"))
		kittest.Pass(time.Second)
		equal(t, "Secrets", []string{"team-a/db", "team-b/db", "vault/db"}, c.names())
	})
}

// The minute after which a copy goes is counted by one process.
func TestARestartInTheMiddleOfTheMinute(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		stop := c.begin()
		c.lacks(vault, "db")
		kittest.Pass(grace - 10*time.Second)
		stop()
		c.run()
		kittest.Pass(grace - 10*time.Second)
		equal(t, "writes", nil, c.writes())
		kittest.Pass(20 * time.Second)
		equal(t, "writes after a minute", []string{"delete team-a/db"}, c.writes())
	})
}

// All sources go at once, as when a CustomResourceDefinition is removed whose objects own them: they were deleted.
func TestAllSourcesAreDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("one", "1"), newSource("two", "1"), newNamespace("team-b", marked), newNamespace("silent", marked))
		c.begin()
		c.put(newNamespace("silent"))
		for _, name := range []string{"db", "one", "two"} {
			c.lacks(vault, name)
		}
		kittest.Pass(grace - 5*time.Second)
		equal(t, "how many Secrets in less than a minute", 9, len(c.names()))
		kittest.Pass(10 * time.Second)
		equal(t, "Secrets after a minute", []string{"silent/db", "silent/one", "silent/two"}, c.names())
	})
}

// A Secret of somebody else is left alone, and becomes the copy when somebody labels it: so are
// those of another tool taken over.
func TestANameThatIsTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		theirs := foreign("team-a", "db")
		theirs.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: `{"data":"` + marker + `0"}`}
		c.put(newSource("db", "1"), newNamespace("team-a", marked), newNamespace("team-b", marked), theirs)
		c.run()
		kittest.Pass(time.Second)
		equal(t, "events", []string{isTaken}, c.events())
		requireProblems(t, map[string]int64{ReasonNameTaken: 1})
		kittest.Pass(time.Hour)
		equal(t, "more events", nil, c.events())
		if n := len(c.writes()); n > 22 {
			t.Errorf("%d attempts in an hour", n)
		}

		c.put(newNamespace("team-a", saying("false")))
		kittest.Pass(time.Hour)
		equal(t, "what was there", foreign("team-a", "db").Data, c.secret("team-a", "db").Data)
		requireProblems(t, nil)
		c.writes()

		c.edit("team-a", "db", func(s *corev1.Secret) { s.Labels = map[string]string{LabelSourceNamespace: vault, "team": "a"} })
		kittest.Pass(time.Hour)
		equal(t, "writes where none is wanted", nil, c.writes())
		c.put(newNamespace("team-a", marked))
		kittest.Pass(time.Minute)
		equal(t, "writes", []string{"update team-a/db"}, c.writes())
		taken := c.secret("team-a", "db")
		equal(t, "data", newSource("db", "1").Data, taken.Data)
		equal(t, "annotations", map[string]string{AnnotationMadeFor: "team-a/db"}, taken.Annotations)
		equal(t, "labels", map[string]string{LabelSourceNamespace: vault, "team": "a"}, taken.Labels)
		requireProblems(t, nil)
		c.put(newNamespace("team-a", saying("false")))
		kittest.Pass(time.Minute)
		equal(t, "Secrets", []string{"team-b/db", "vault/db"}, c.names())
	})
}

// A replacement takes three requests, and webhooks can make each of them slow. Data is written only if both sides say
// yes right before that.
func TestRevokedInTheMiddleOfAReplacement(t *testing.T) {
	for _, during := range []string{"try", "delete"} {
		for says, revoke := range map[string]func(c *cluster){
			"the source says false":    func(c *cluster) { c.put(newSource("db", "2", listing("false"))) },
			"it lists another":         func(c *cluster) { c.put(newSource("db", "2", listing("team-b"))) },
			"the namespace says false": func(c *cluster) { c.put(newNamespace("team-a", saying("false"))) },
			"the namespace is unclear": func(c *cluster) { c.put(newNamespace("team-a", saying("never"))) },
		} {
			t.Run(during+", "+says, func(t *testing.T) {
				inBubble(t, func(t *testing.T, c *cluster) {
					c.begin()
					c.edit("team-a", "db", immutable)
					kittest.Pass(time.Second)
					c.answers(func(verb, _ string) error {
						if verb == during {
							c.answers(nil)
							revoke(c)
							time.Sleep(20 * time.Second)
						}
						return nil
					})
					c.put(newSource("db", "2"))
					kittest.Pass(5 * time.Minute)
					if shown := c.secret("team-a", "db"); shown != nil {
						t.Errorf("shown: %q", shown.Data)
					}
				})
			})
		}
	}
}

// A source that is gone for less than a minute leaves its copies, whatever it said before.
func TestEachReasonHasAMinute(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.begin()
		c.put(newSource("db", "1", listing("team-b")))
		kittest.Pass(50 * time.Second)
		c.lacks(vault, "db")
		kittest.Pass(15 * time.Second)
		c.put(newSource("db", "2"))
		kittest.Pass(time.Minute)
		equal(t, "writes", []string{"update team-a/db"}, c.writes())
		equal(t, "events", nil, c.events())
	})
}

// Whoever has their namespace say yes and no in turns makes no refused copy come again sooner.
func TestTogglingKeepsTheBackOff(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newNamespace("team-a", marked), newSource("db", "1"))
		c.answers(func(string, string) error {
			return apierrors.NewForbidden(secretResource.GroupResource(), "db", errors.New("exceeded quota: small"))
		})
		c.run()
		for range 300 {
			c.put(newNamespace("team-a", saying("false")))
			kittest.Pass(500 * time.Millisecond)
			c.put(newNamespace("team-a", marked))
			kittest.Pass(500 * time.Millisecond)
		}
		if got := len(c.writes()); got > 12 {
			t.Errorf("%d attempts in five minutes", got)
		}
	})
}

// What has the label and cannot be overwritten is told, and left alone.
func TestSecretsThatAreNoCopies(t *testing.T) {
	const before, after = `db Warning: ErrResourceExists: Namespace "team-b": the Secret there has the label of a copy, but `,
		`, so it is left alone. To get a copy instead: kubectl delete secret db --namespace=team-b`
	for why, edit := range map[string]func(*corev1.Secret){
		"it was made for another place":                       func(s *corev1.Secret) { s.Annotations = map[string]string{AnnotationMadeFor: "team-a/db"} }, // A backup was restored.
		"it was made for another place ":                      func(s *corev1.Secret) { s.Annotations = map[string]string{AnnotationMadeFor: "team-b/other"} },
		"it was made for another place  ":                     func(s *corev1.Secret) { s.Annotations = map[string]string{AnnotationMadeFor: ""} },
		"someone else made it immutable, or of another type":  immutable,
		"someone else made it immutable, or of another type ": ofType("example.com/other"),
	} {
		t.Run(why, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.begin()
				is := onlyLabeled("team-b", "db")
				edit(is)
				for _, answers := range [][]func(metav1.Object){nil, {saying("false")}, {saying("ture")}} {
					c.put(newNamespace("team-b", answers...), is)
					kittest.Pass(time.Hour)
				}
				c.events()
				c.put(newNamespace("team-b", marked))
				kittest.Pass(time.Hour)
				equal(t, "events", []string{before + strings.TrimSpace(why) + after}, c.events())
				requireProblems(t, map[string]int64{ReasonNameTaken: 1})
				equal(t, "writes", nil, c.writes())
				c.lacks("team-b", "db")
				kittest.Pass(time.Minute)
				equal(t, "data", newSource("db", "1").Data, c.secret("team-b", "db").Data)
				requireProblems(t, nil)
			})
		})
	}
}

// Whoever can write in one namespace is shown nothing that a source does not give them, and changes nothing for others,
// whatever the Secrets there look like: nobody gets what is not meant for them, no copy of others is written or
// deleted, and each rotation comes to all at once.
func TestATenantChangesNothingForOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("private", "1", listing("team-*")), newSource("unmarked", "1", unmarked), newSource("unclear", "1", listing("yes")))
		c.put(newNamespace("team-b", marked), newNamespace("tenant", marked))
		stop := c.begin()
		others := []string{"team-a/db", "team-a/private", "team-b/db", "team-b/private"}
		for hour, says := range []string{"true", "disabled", "no", "-", "false", "true"} {
			if c.put(newNamespace("tenant", saying(says))); says == "-" {
				c.put(newNamespace("tenant"))
			}
			for _, name := range []string{"db", "private", "unmarked", "unclear", "strange"} {
				for _, change := range []func(s *corev1.Secret){
					func(*corev1.Secret) {},
					func(s *corev1.Secret) { s.Annotations = nil },
					func(s *corev1.Secret) { s.Annotations[AnnotationMadeFor] = "team-a/" + s.Name },
					func(s *corev1.Secret) { s.Annotations[AnnotationMadeFor] = "tenant/other" },
					func(s *corev1.Secret) { s.Annotations[Annotation] = "*" },
					func(s *corev1.Secret) { s.Data = nil },
					immutable,
				} {
					secret := planted("tenant", name)
					change(secret)
					c.put(secret)
					kittest.Pass(10 * time.Second)
					for _, secret := range script.All[corev1.Secret](c.Cluster) {
						if isGiven := secret.Name == "db" && says == "true"; secret.Namespace == "tenant" && !isGiven {
							requireNoSecret(t, "the tenant's Secret "+secret.Name, fmt.Sprintf("%q", secret.Data))
						}
					}
				}
				c.lacks("tenant", name)
			}
			isOfOthers := func(name string) bool { return strings.Contains(name, "team-") }
			equal(t, "writes to others", nil, slices.DeleteFunc(c.writes(), func(write string) bool { return !isOfOthers(write) }))
			c.put(newSource("db", fmt.Sprint(hour+2)))
			kittest.Pass(time.Second)
			equal(t, "a rotation", c.secret(vault, "db").Data, c.secret("team-b", "db").Data)
			equal(t, "copies of others", others, slices.DeleteFunc(c.names(), func(name string) bool { return !isOfOthers(name) }))
			c.writes()
		}
		stop()
		c.lacks(vault, "private")
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
			n++ // in other words each time
			return apierrors.NewForbidden(secretResource.GroupResource(), "db", fmt.Errorf("exceeded quota: small, used: %d", n))
		})
		c.run()
		equal(t, "how many Secrets", 20, len(c.names()))
		kittest.Pass(time.Hour)
		equal(t, "events", []string{`db Warning: CopyFailed: Namespace "team-07": creating the copy: exceeded quota: small`}, c.events())
		if n < 17 || n > 22 { // 9 in the first five minutes, and then one in five
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

// The cache does not show that a namespace is being deleted. A copy that is refused for that reason is no news.
func TestANamespaceThatEndsUnseen(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newNamespace("team-a", marked))
		c.run()
		c.Hold("namespaces")
		// It is deleted between the live read and the creation.
		c.answers(func(string, string) error {
			c.answers(nil)
			c.put(newNamespace("team-a", marked, ending))
			return apierrors.NewForbidden(secretResource.GroupResource(), "db", errors.New("the namespace is being terminated"))
		})
		c.put(newSource("db", "1"))
		kittest.Pass(time.Hour)
		equal(t, "writes", []string{"create team-a/db"}, c.writes())
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

// Each write costs a read of the namespace and one of the source. Each copy is synced after a change of its source,
// after the write, and five seconds later.
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
			for _, request := range []string{"get namespaces", "get secrets", "list secrets", "create secrets", "patch secrets", "delete secrets"} {
				if m := c.Requests(request); m > 0 {
					got[request] = m
				}
			}
			equal(t, "requests for "+what, want, got)
			c.ForgetRequests()
		}
		c.run()
		requireRequests("new copies", map[string]int{"list secrets": 2, "get namespaces": n, "get secrets": n, "create secrets": n})
		before := c.logged.Len()
		c.put(newSource("db", "2"))
		requireRequests("a rotation", map[string]int{"get namespaces": n, "get secrets": n, "patch secrets": n})
		syncs := regexp.MustCompile(`"(?:Synced|Sync deferred)".* object="`).FindAllString(c.logged.String()[before:], -1)
		if len(syncs) < 2*n || len(syncs) > 3*n {
			t.Errorf("there were %d syncs of %d copies", len(syncs), n)
		}
		before = c.logged.Len()
		c.put(newNamespace("team-00", marked, labeled("cattle.io/state", "x")))
		requireRequests("what changes no copy", nil)
		if strings.Contains(c.logged.String()[before:], `"Synced"`) {
			t.Error("a label of a namespace has its copies synced")
		}
		c.put(newSource("db", "2", listing("false")))
		requireRequests("deletions", map[string]int{"get namespaces": n, "get secrets": n, "delete secrets": n})
	})
}

// The cache of namespaces is older than that of copies: a copy that another process has
// written for a namespace which has just been marked is not deleted.
func TestNothingIsDeletedBecauseACacheIsBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.begin()
		copied := c.secret("team-a", "db")
		c.put(newNamespace("team-a", saying("false")))
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
	for _, is := range []*corev1.Secret{nil, onlyLabeled("tenant", "db"), planted("tenant", "db")} {
		inBubble(t, func(t *testing.T, c *cluster) {
			c.put(newNamespace("tenant"))
			c.begin()
			c.mu.Lock()
			c.isCutOff = true
			c.mu.Unlock()
			c.Expire("secrets")
			c.put(newSource("db", "1", listing("team-a")))
			if is != nil {
				c.put(is)
			}
			c.put(newNamespace("tenant", marked))
			kittest.Pass(50 * time.Second)
			equal(t, "writes", nil, c.writes())
			if is != nil {
				equal(t, "the Secret", foreign("tenant", "db").Data, c.secret("tenant", "db").Data)
			}
		})
	}
}

// What looks like a copy is synced again when its namespace appears in the cache.
func TestACopyIsKnownBeforeItsNamespace(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.run()
		c.Hold("namespaces")
		c.put(newNamespace("team-a", saying("false")), planted("team-a", "db"))
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
		kittest.Pass(time.Minute)
		equal(t, "Secrets", []string{"team-a/db", "vault/db"}, c.names())
	})
}

// A webhook that changes copies is told like somebody who reverts them, and costs as little.
func TestAWebhookThatChangesCopies(t *testing.T) {
	nonce := 0
	for part, alter := range map[string]func(*corev1.Secret){
		"data":         func(s *corev1.Secret) { nonce++; s.Data["nonce"] = fmt.Appendf(nil, "%s%d", marker, nonce) },
		"annotations":  func(s *corev1.Secret) { s.Annotations = map[string]string{"by": "webhook"} },
		"immutability": immutable, // which is no problem
	} {
		t.Run(part, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.alters(alter)
				c.begin()
				kittest.Pass(time.Hour)
				var warnings []string
				problems, most := map[string]int64{}, 0
				if part != "immutability" {
					warnings, most = []string{contested}, 22
					problems[ReasonContested] = 1
				}
				if n := len(c.writes()); n > most {
					t.Errorf("%d writes in an hour", n)
				}
				equal(t, "warnings", warnings, c.warnings())
				requireProblems(t, problems)
				c.alters(func(*corev1.Secret) {})
				c.put(newSource("db", "2"))
				kittest.Pass(10 * time.Minute)
				equal(t, "data without the webhook", c.secret(vault, "db").Data, c.secret("team-a", "db").Data)
				requireProblems(t, nil)
				c.writes()
				kittest.Pass(time.Hour)
				equal(t, "writes", nil, c.writes())
			})
		})
	}
}

const contested = `db Warning: CopyContested: Namespace "team-a": the copy does not stay as it is written: someone, or an admission webhook, changes it each time; retrying with back-off`

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

// Someone reverts each write, deletes the copy each time, re-creates an unwanted one, or holds it by a finalizer.
func TestAFightIsSlow(t *testing.T) {
	for name, tt := range map[string]struct {
		isWanted bool
		undo     func(c *cluster, copied *corev1.Secret)
	}{
		"about data":                      {true, func(c *cluster, s *corev1.Secret) { s.Data["password"] = []byte("x"); c.put(s) }},
		"about whether it is there":       {true, func(c *cluster, s *corev1.Secret) { c.lacks(s.Namespace, s.Name) }},
		"about whether it should be gone": {false, func(c *cluster, s *corev1.Secret) { c.put(s) }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.begin()
				copied := c.secret("team-a", "db")
				if !tt.isWanted {
					c.put(newNamespace("team-a", saying("false")))
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
				if n := fight(20); n > 3 {
					t.Errorf("%d writes in ten seconds", n)
				}
				if n := fight(7200); n < 10 || n > 25 {
					t.Errorf("%d writes in an hour", n)
				}
				equal(t, "warnings", []string{contested}, c.warnings())
				requireProblems(t, map[string]int64{ReasonContested: 1})
				kittest.Pass(15 * time.Minute)
				requireProblems(t, nil)
				equal(t, "whether it is there", tt.isWanted, c.secret("team-a", "db") != nil)

				// A change of the source is written without delay.
				fight(20)
				c.put(newSource("db", "2"), newNamespace("team-a", marked))
				kittest.Pass(interval)
				equal(t, "data after a rotation", newSource("db", "2").Data, c.secret("team-a", "db").Data)
			})
		})
	}
}

// A tenant edits their copies all the time, so that each write meets another version. That costs a few requests, and
// delays nobody.
func TestATenantWhoEditsAllTheTime(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newNamespace("team-b", marked))
		c.begin()
		c.answers(func(verb, namespace string) error {
			if verb == "update" && namespace == "team-a" {
				return apierrors.NewConflict(secretResource.GroupResource(), "db", errors.New("the object has been modified"))
			}
			return nil
		})
		c.writes()
		c.ForgetRequests()
		for i := range 6000 {
			c.edit("team-a", "db", func(s *corev1.Secret) { s.Data["password"] = fmt.Appendf(nil, "%d", i) })
			kittest.Pass(100 * time.Millisecond)
		}
		if n := c.Requests("get secrets"); n > 15 {
			t.Errorf("%d live reads in ten minutes", n)
		}
		c.writes()
		c.put(newSource("db", "2"))
		kittest.Pass(time.Second)
		equal(t, "data of another", newSource("db", "2").Data, c.secret("team-b", "db").Data)
		c.answers(nil)
		kittest.Pass(6 * time.Minute)
		equal(t, "data in the end", newSource("db", "2").Data, c.secret("team-a", "db").Data)
		requireProblems(t, nil)
	})
}

// One copy is written at once, and then at most every five seconds.
func TestASourceThatChangesAllTheTime(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newNamespace("team-a", marked))
		c.run()
		c.put(newSource("db", "0"))
		kittest.Pass(10 * time.Millisecond)
		equal(t, "writes at once", []string{"create team-a/db"}, c.writes())
		for i := range 60 {
			c.put(newSource("db", fmt.Sprint(i)))
			kittest.Pass(time.Second)
		}
		if n := len(c.writes()); n != 12 {
			t.Errorf("%d writes in a minute", n)
		}
		kittest.Pass(interval)
		equal(t, "data in the end", newSource("db", "59").Data, c.secret("team-a", "db").Data)
		equal(t, "warnings", nil, c.warnings())
	})
}

// However many copies are reverted or refused, each costs a few writes in the first minutes, and then one in five
// minutes.
func TestNothingIsAStorm(t *testing.T) {
	const n = 10
	for name, storm := range map[string]func(c *cluster, second int){
		"a source that is re-created each second": func(c *cluster, _ int) {
			c.lacks(vault, "db")
			c.put(newSource("db", "first"))
		},
		"copies that are refused": func(c *cluster, _ int) {
			c.answers(func(string, string) error {
				return apierrors.NewForbidden(secretResource.GroupResource(), "db", errors.New("no"))
			})
			c.put(newSource("db", "second"))
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

// A copy that a finalizer holds follows its source until it is gone, and then there is another one.
func TestACopyThatAFinalizerHolds(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.begin()
		c.edit("team-a", "db", func(s *corev1.Secret) { s.Finalizers = []string{"example.com/wait"} })
		script.Delete[corev1.Secret](c.Cluster, "team-a", "db", metav1.DeletePropagationBackground)
		c.put(newSource("db", "2"))
		kittest.Pass(24 * time.Hour)
		equal(t, "data", newSource("db", "2").Data, c.secret("team-a", "db").Data)
		equal(t, "writes", []string{"update team-a/db"}, slices.Compact(c.writes()))
		c.put(newSource("db", "2", listing("false")))
		kittest.Pass(24 * time.Hour)
		equal(t, "warnings", []string{contested}, c.warnings())
		c.put(newSource("db", "2"))
		c.lacks("team-a", "db")
		kittest.Pass(6 * time.Minute)
		requireProblems(t, nil)
		equal(t, "data of another copy", newSource("db", "2").Data, c.secret("team-a", "db").Data)
	})
}

// A webhook or a policy can repeat in its message what it was shown. Who has refused is told.
func TestAnswersThatTellSecrets(t *testing.T) {
	resource := secretResource.GroupResource()
	withheld := func(reason string) string {
		return reason + " (the message is withheld, because it can contain data of the Secret)"
	}
	forbidden := func(words string) error { return apierrors.NewForbidden(resource, "db", errors.New(words)) }
	denied := func(words string) error {
		err := apierrors.NewForbidden(resource, "db", nil)
		err.ErrStatus.Message = words
		return err
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{denied(`admission webhook "w.example.com" denied the request: ` + marker), `admission webhook "w.example.com" denied the request`},
		{denied(`admission webhook "w.example.com" denied the request: exceeded quota: ` + marker), `admission webhook "w.example.com" denied the request`},
		{denied(`admission webhook "w.example.com" denied the request without explanation`), `admission webhook "w.example.com" denied the request`},
		{apierrors.NewInternalError(errors.New(`failed calling webhook "w.example.com": ` + marker)), `failed calling webhook "w.example.com"`},
		{forbidden(`ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ` + marker), `ValidatingAdmissionPolicy 'p' with binding 'b' denied request`},
		{denied(`policy 'p' with binding 'b' denied request: expression ` + marker), `policy 'p' with binding 'b' denied request`},
		{forbidden(`exceeded quota: small, requested: secrets=1, used: secrets=1, limited: secrets=1`), `exceeded quota: small`},
		{denied(`secrets is forbidden: User "u" cannot create resource "secrets" in API group "" in the namespace "team-a"`), `User "u" cannot create resource "secrets"`},
		{apierrors.NewConflict(resource, "db", errors.New(marker)), `Operation cannot be fulfilled on secrets "db"`},
		{apierrors.NewAlreadyExists(resource, "db"), `secrets "db" already exists`},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "db", field.ErrorList{field.Invalid(field.NewPath("data"), marker, marker)}), withheld("Invalid")},
		{forbidden(marker + ` exceeded quota: small`), withheld("Forbidden")},
		{forbidden(marker), withheld("Forbidden")},
	} {
		got := redact("creating the copy", tt.err)
		equal(t, "message", "creating the copy: "+tt.want, got.Error())
		equal(t, "whether it still is what it was", apierrors.ReasonForError(tt.err), apierrors.ReasonForError(got))
	}
	if lost := errors.New("EOF"); !errors.Is(redact("creating the copy", lost), lost) || redact("", nil) != nil {
		t.Error("what is no response has become another error")
	}
}

// A rotation that is refused says by whom.
func TestARotationThatIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.begin()
		c.answers(func(string, string) error {
			return apierrors.NewForbidden(secretResource.GroupResource(), "db", errors.New("ValidatingAdmissionPolicy 'frozen' with binding 'team-a' denied request: not "+marker+"2"))
		})
		c.put(newSource("db", "2"))
		kittest.Pass(time.Minute)
		const why = "updating the copy: ValidatingAdmissionPolicy 'frozen' with binding 'team-a' denied request"
		equal(t, "events", []string{`db Warning: CopyFailed: Namespace "team-a": ` + why}, c.events())
		if !strings.Contains(c.logged.String(), `"Sync failed" err="`+why+`"`) {
			t.Error("the log does not say so")
		}
	})
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
		c.put(newNamespace("team-a", saying("false")))
		c.vanishes("team-b")
		kittest.Pass(20 * time.Minute)
		for _, namespace := range []string{"team-a", "team-b"} {
			place := &metav1.ObjectMeta{Namespace: namespace, Name: "db", UID: identities[namespace]}
			if last := c.controller.attempts.Last(place); last != (pace.Attempt{}) {
				t.Errorf("the copy in %s is remembered: %v", namespace, last)
			}
		}
		equal(t, "how many troubles are remembered", 0, len(c.controller.troubles.copies)+len(c.controller.troubles.told))
	})
}

func TestStartup(t *testing.T) {
	startup.Test(t, func(ctx context.Context, args []string) error { return newProgram().Run(ctx, args) })
}
