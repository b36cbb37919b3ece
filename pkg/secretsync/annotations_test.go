package secretsync

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kittest"
)

func TestReceivers(t *testing.T) {
	both := "team-b, web,x"
	for _, tt := range []struct {
		name            string
		names, selector *string
		isRequired      bool
		want            string // of team-a, team-b and web, which has the label tier=front
		wantErr         string
	}{
		{name: "all", want: "team-a team-b web"},
		{name: "none, because receivers are required", isRequired: true, wantErr: "must say"},
		{name: "one", names: new("team-b"), want: "team-b"},
		{name: "one, as is required", names: new("team-b"), isRequired: true, want: "team-b"},
		{name: "several", names: &both, want: "team-b web"},
		{name: "those of a pattern", names: new("team-*"), want: "team-a team-b"},
		{name: "all that there are", names: new("*"), isRequired: true, want: "team-a team-b web"},
		{name: "a pattern in the middle", names: new("t*b\nw*"), want: "team-b web"},
		{name: "names of none", names: new(" , "), wantErr: "names no namespace"},
		{name: "no name", names: new("team-a,Team_B"), wantErr: `"Team_B"`},
		{name: "a pattern of another kind", names: new("team-[ab]"), wantErr: `"team-[ab]"`},
		{name: "by label", selector: new("tier=front"), isRequired: true, want: "web"},
		{name: "by the label's absence", selector: new("!tier"), want: "team-a team-b"},
		{name: "by a set", selector: new("tier in (front, back)"), want: "web"},
		{name: "by no label", selector: new(""), wantErr: "is empty"},
		{name: "by nonsense", selector: new("tier in front"), wantErr: "secretsync-namespace-selector"},
		{name: "by both", names: &both, selector: new("!tier"), want: "team-b"},
		{name: "by both, of which one is wrong", names: new(""), selector: new("!tier"), wantErr: "names no namespace"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := usual
			config.RequireReceivers = tt.isRequired
			source := newSource("db", "1")
			for key, value := range map[string]*string{AnnotationNamespaces: tt.names, AnnotationNamespaceSelector: tt.selector} {
				if value != nil {
					source.Annotations[key] = *value
				}
			}
			config.StripSource(source)
			var got []string
			for _, namespace := range []*corev1.Namespace{newNamespace("team-a"), newNamespace("team-b"), newNamespace("web", labeled("tier", "front"))} {
				config.StripNamespace(namespace)
				if isAllowed(config, source, namespace) {
					got = append(got, namespace.Name)
				}
			}
			equal(t, "receivers", tt.want, strings.Join(got, " "))
			if warning := config.warningAboutSource(source); !strings.Contains(warning.Message, tt.wantErr) || (warning != Problem{}) != (tt.wantErr != "") {
				t.Errorf("the warning is %v, want %q", warning, tt.wantErr)
			}
		})
	}
}

func isAllowed(config Config, source *corev1.Secret, namespace *corev1.Namespace) bool {
	restriction, err := config.restrictionOf(source)
	return err == nil && restriction.allows(namespace)
}

func labeled(key, value string) func(metav1.Object) {
	return func(obj metav1.Object) { obj.SetLabels(map[string]string{key: value}) }
}

func valued(value string) func(metav1.Object) {
	return func(obj metav1.Object) { obj.SetAnnotations(map[string]string{usual.Annotation: value}) }
}

func TestWhatIsConsent(t *testing.T) {
	for value, want := range map[string]struct{ isYes, isUnclear bool }{"": {true, false}, "Yes": {true, false}, "off": {false, false}, "team-a": {false, true}} {
		namespace := newNamespace("team-a", valued(value))
		source := newSource("db", "1", func(s *corev1.Secret) { s.Annotations[usual.Annotation] = value })
		if usual.IsTarget(namespace) != want.isYes || usual.IsSource(source) != want.isYes {
			t.Errorf("%q is a yes for a namespace: %t, for a source: %t", value, usual.IsTarget(namespace), usual.IsSource(source))
		}
		for _, warning := range []Problem{usual.warningAboutNamespace(namespace), usual.warningAboutSource(source)} {
			if (warning != Problem{}) != want.isUnclear {
				t.Errorf("for %q there is the warning %q", value, warning)
			}
		}
	}
	for _, quiet := range []*corev1.Namespace{newNamespace("team-a"), newNamespace("kube-system", valued("x")), newNamespace("vault", valued("x")), newNamespace("team-a", valued("x"), ending)} {
		if warning := usual.warningAboutNamespace(quiet); (warning != Problem{}) {
			t.Errorf("for %s there is the warning %q", quiet.Name, warning)
		}
	}
}

// Copies follow the annotations of their source and the labels of namespaces.
func TestReceiversChange(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		restrict := func(key, value string) func(*corev1.Secret) {
			return func(s *corev1.Secret) { s.Annotations[key] = value }
		}
		c.put(newSource("db", "1", restrict(AnnotationNamespaces, "team-a")))
		c.put(newNamespace("team-a", marked))
		c.put(newNamespace("team-b", marked))
		c.put(newNamespace("team-c"))
		stop := c.run()
		kittest.Pass(time.Minute)
		equal(t, "Secrets", []string{"team-a/db", "vault/db"}, c.names())

		c.put(newSource("db", "1", restrict(AnnotationNamespaces, "team-b,team-c")))
		kittest.Pass(time.Minute)
		equal(t, "Secrets of another", []string{"team-b/db", "vault/db"}, c.names())
		c.put(newSource("db", "1", restrict(AnnotationNamespaceSelector, "env=prod")))
		kittest.Pass(time.Minute)
		equal(t, "Secrets of those with a label that none has", []string{"vault/db"}, c.names())
		c.put(newNamespace("team-a", marked, labeled("env", "prod")))
		kittest.Pass(time.Minute)
		equal(t, "Secrets of one that gets it", []string{"team-a/db", "vault/db"}, c.names())
		c.put(newNamespace("team-a", marked, labeled("env", "test")))
		kittest.Pass(time.Minute)
		equal(t, "Secrets of one that loses it", []string{"vault/db"}, c.names())
		const deleted = `: deleted the copy, because its source is no longer meant for the namespace`
		equal(t, "events", []string{
			`db Normal: CopyDeleted: Namespace "team-a"` + deleted, `db Normal: CopyDeleted: Namespace "team-a"` + deleted,
			`db Normal: CopyDeleted: Namespace "team-b"` + deleted,
		}, c.events())

		c.put(newSource("db", "1", restrict(AnnotationNamespaces, "team-b")))
		kittest.Pass(time.Minute)
		c.put(newSource("db", "1", restrict(AnnotationNamespaces, "team-a;team-b")))
		kittest.Pass(time.Hour)
		equal(t, "Secrets when nobody knows who may have one", []string{"team-b/db", "vault/db"}, c.names())
		equal(t, "events", []string{`db Warning: NoReceivers: No namespace gets a new copy, and existing copies stay as they are: annotation controller.nicoleh.io/secretsync-namespaces: "team-a;team-b" is neither the name of a namespace nor a pattern such as "team-*"`}, c.events())
		requireProblems(t, map[string]int{ReasonNoReceivers: 1})
		c.put(newSource("db", "1"))
		kittest.Pass(time.Hour)
		equal(t, "Secrets of all", []string{"team-a/db", "team-b/db", "vault/db"}, c.names())
		requireProblems(t, nil)
		stop()
	})
}

func TestReceiversAreRequired(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		strict := usual
		strict.RequireReceivers = true
		c.put(newSource("db", "1"))
		c.put(newSource("tls", "1", func(s *corev1.Secret) { s.Annotations[AnnotationNamespaces] = "*" }))
		c.put(newNamespace("team-a", marked))
		stop := c.runAs(strict)
		kittest.Pass(time.Hour)
		equal(t, "Secrets", []string{"team-a/tls", "vault/db", "vault/tls"}, c.names())
		equal(t, "events", []string{"db Warning: NoReceivers: No namespace gets a copy: annotation controller.nicoleh.io/secretsync-namespaces or controller.nicoleh.io/secretsync-namespace-selector must say which namespaces may have one"}, c.events())
		stop()
	})
}

// An unclear annotation adds no copy and deletes none, with a warning about how to be clear.
func TestUnclearAnnotations(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.put(newSource("db", "1"))
		c.put(newSource("tls", "1", func(s *corev1.Secret) { s.Annotations[usual.Annotation] = "nay" }))
		c.put(newNamespace("team-a", valued("nope")))
		c.put(newNamespace("team-b", marked))
		c.put(newNamespace("team-c", valued("false")))
		stop := c.run()
		kittest.Pass(time.Hour)
		equal(t, "Secrets", []string{"team-b/db", "vault/db", "vault/tls"}, c.names())
		words := ` Warning: UnclearAnnotation: Annotation example.com/share is %s, so existing copies stay as they are and no new ones are made: for yes, it must be empty or "true"; for no, "false"`
		equal(t, "events", []string{"team-a" + fmt.Sprintf(words, `"nope"`), "tls" + fmt.Sprintf(words, `"nay"`)}, c.events())

		mark := func(value string) func(*corev1.Secret) {
			return func(s *corev1.Secret) { s.Annotations[usual.Annotation] = value }
		}
		c.put(newSource("db", "1", mark("nay")))
		kittest.Pass(time.Hour)
		equal(t, "Secrets", []string{"team-b/db", "vault/db", "vault/tls"}, c.names())
		c.put(newSource("db", "1", mark("no")))
		kittest.Pass(time.Hour)
		equal(t, "Secrets without a mark", []string{"vault/db", "vault/tls"}, c.names())
		c.put(newSource("db", "1"))
		kittest.Pass(time.Hour)
		c.events()

		c.put(newNamespace("team-b", valued("nay")))
		kittest.Pass(time.Hour)
		equal(t, "Secrets", []string{"team-b/db", "vault/db", "vault/tls"}, c.names())
		equal(t, "events", []string{"team-b" + fmt.Sprintf(words, `"nay"`)}, c.events())
		c.put(newNamespace("team-b", valued("no")))
		kittest.Pass(time.Hour)
		equal(t, "Secrets", []string{"vault/db", "vault/tls"}, c.names())
		equal(t, "events", []string{`db Normal: CopyDeleted: Namespace "team-b": deleted the copy, because the namespace is no longer marked`}, c.events())
		c.lacks(namespacesGVR, "", "team-a")
		c.lacks(secretResource, "vault", "tls")
		kittest.Pass(time.Hour)
		equal(t, "events", nil, c.events())
		c.put(newNamespace("team-a", valued("nay")))
		kittest.Pass(time.Hour)
		equal(t, "how many events after it was re-created", 1, len(c.events()))
		stop()
	})
}
