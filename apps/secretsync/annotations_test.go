package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/pkg/kittest"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

func TestReceivers(t *testing.T) {
	some := "team-b, web,x"
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
		{name: "several", names: &some, want: "team-b web"},
		{name: "those of a pattern", names: new("team-*"), want: "team-a team-b"},
		{name: "all that there are", names: new("*"), isRequired: true, want: "team-a team-b web"},
		{name: "a pattern in the middle", names: new("t*b\nw*"), want: "team-b web"},
		{name: "names of none", names: new(" , "), wantErr: "names no namespace"},
		{name: "no name", names: new("team-a,Team_B"), wantErr: `"Team_B"`},
		{name: "by label", selector: new("tier=front"), isRequired: true, want: "web"},
		{name: "by a set", selector: new("tier in (front, back)"), want: "web"},
		{name: "by no label", selector: new(""), wantErr: "is empty"},
		{name: "by nonsense", selector: new("tier in front"), wantErr: "secretsync-namespace-selector"},
		{name: "by both, which others read as one or the other", names: &some, selector: new("!tier"), wantErr: "keep one"},
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
				if restriction, err := config.restrictionOf(source); err == nil && restriction.allows(namespace) {
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

// A key that is nearly right may have been meant to narrow the circle.
func TestUnknownKeys(t *testing.T) {
	for key, want := range map[string]string{
		"controller.nicoleh.io/secretsync-namespace":           AnnotationNamespaces,
		"controller.nicoleh.io/secret-sync-namespaces":         AnnotationNamespaces,
		strings.ToUpper(domain) + "secretsync-namespaces":      AnnotationNamespaces,
		"controller.nicoleh.io/secretsync-namespaces-selector": AnnotationNamespaceSelector,
		"controller.nicoleh.io/secretsync-note":                AnnotationNamespaces,
		AnnotationNamespaces:                                   "",
		AnnotationMadeFor:                                      "", // Somebody has restored a source from a copy.
		DefaultAnnotation:                                      "", // the mark of another secretsync
		"example.com/share":                                    "",
		"secretsync-namespaces":                                "",
		AnnotationSourceName:                                   "",
		AnnotationSourceNamespaceUID:                           "",
	} {
		source := newSource("db", "1", saying(key, "yes"))
		for range 2 { // a transform may see an object twice
			usual.StripSource(source)
		}
		warning := usual.warningAboutSource(source)
		if (want == "") != (warning == Problem{}) || want != "" && !strings.HasSuffix(warning.Message, "annotation "+key+" is unknown; the closest known one is "+want) {
			t.Errorf("for %s, the warning is %q, want %q", key, warning.Message, want)
		}
		source = newSource("db", "1", func(s *corev1.Secret) { s.Labels[key] = "yes" })
		usual.StripSource(source)
		if warning := usual.warningAboutSource(source); strings.HasPrefix(key, domain) && !strings.Contains(warning.Message, "label "+key+" means nothing") {
			t.Errorf("for the label %s, the warning is %q", key, warning.Message)
		}
	}
}

func TestWhatIsConsent(t *testing.T) {
	for value, want := range map[string]answer{"": yes, "Yes": yes, "off": no, "team-a": unclear} {
		namespace := newNamespace("team-a", valued(value))
		source := newSource("db", "1", saying(usual.Annotation, value))
		if usual.answerOf(namespace) != want || usual.answerOf(source) != want {
			t.Errorf("%q means %d for a namespace and %d for a source", value, usual.answerOf(namespace), usual.answerOf(source))
		}
		for _, warning := range []Problem{usual.warningAboutNamespace(namespace), usual.warningAboutSource(source)} {
			if (warning != Problem{}) != (want == unclear) {
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
		c.put(newSource("db", "1", saying(AnnotationNamespaces, "team-a")))
		c.put(newNamespace("team-a", marked))
		c.put(newNamespace("team-b", marked))
		c.put(newNamespace("team-c"))
		c.run()
		for _, step := range []struct {
			put  apiserver.Object
			want []string
		}{
			{newNamespace("team-d"), []string{"team-a/db", "vault/db"}},
			{newSource("db", "1", saying(AnnotationNamespaces, "team-b,team-c")), []string{"team-b/db", "vault/db"}},
			{newSource("db", "1", saying(AnnotationNamespaceSelector, "env=prod")), []string{"vault/db"}},
			{newNamespace("team-a", marked, labeled("env", "prod")), []string{"team-a/db", "vault/db"}},
			{newNamespace("team-a", marked, labeled("env", "test")), []string{"vault/db"}},
		} {
			c.put(step.put)
			kittest.Pass(time.Minute)
			equal(t, "Secrets", step.want, c.names())
		}
		const deleted = `: deleted the copy, because its source is no longer meant for the namespace`
		equal(t, "events", []string{
			`db Normal: CopyDeleted: Namespace "team-a"` + deleted, `db Normal: CopyDeleted: Namespace "team-a"` + deleted,
			`db Normal: CopyDeleted: Namespace "team-b"` + deleted,
		}, c.events())
	})
}

// While it is unclear who may have a source, nothing is created, changed or deleted for it.
func TestUnclearSources(t *testing.T) {
	for name, tt := range map[string]struct {
		unclear func(s *corev1.Secret)
		words   string
	}{
		"a misspelt restriction": {
			saying(domain+"secretsync-namespace", "team-a"),
			"annotation controller.nicoleh.io/secretsync-namespace is unknown; the closest known one is controller.nicoleh.io/secretsync-namespaces",
		},
		"a restriction that cannot be read": {
			saying(AnnotationNamespaces, "team-a;team-b"),
			`annotation controller.nicoleh.io/secretsync-namespaces: "team-a;team-b" is neither the name of a namespace nor a pattern such as "team-*"`,
		},
		"a mark that is neither yes nor no": {saying(usual.Annotation, "nay"), `annotation example.com/share is "nay": for yes, it must be empty or "true"; for no, "false"`},
		"a type that is not copied":         {ofType("helm.sh/release.v1"), "Secrets of type helm.sh/release.v1 are not copied"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.put(newSource("db", "1"))
				c.put(newSource("new", "1", tt.unclear))
				c.put(newNamespace("team-a", marked))
				c.put(newNamespace("team-b", marked))
				c.put(newNamespace("team-c"))
				stop := c.run()
				kittest.Pass(time.Minute)
				c.writes()
				c.put(newSource("db", "2", tt.unclear))
				c.put(newNamespace("team-c", marked))
				kittest.Pass(time.Hour)
				stop()
				c.run()
				kittest.Pass(time.Hour)
				equal(t, "writes", nil, c.writes())
				equal(t, "Secrets", []string{"team-a/db", "team-b/db", "vault/db", "vault/new"}, c.names())
				words := ` Warning: UnclearAnnotation: No copy is created, changed or deleted until it is clear what is meant: ` + tt.words
				equal(t, "events of two processes", []string{"db" + words, "db" + words, "new" + words, "new" + words}, c.events())
				requireProblems(t, map[string]int64{ReasonUnclear: 2})
				c.put(newSource("db", "3", saying(AnnotationNamespaces, "team-a")))
				c.put(newSource("new", "3", saying(usual.Annotation, "no")))
				kittest.Pass(time.Minute)
				equal(t, "Secrets when it is clear", []string{"team-a/db", "vault/db", "vault/new"}, c.names())
				requireProblems(t, nil)
			})
		})
	}
}

// In a namespace whose mark is unclear, nothing is created, changed or deleted, whatever somebody
// labels there, unless a source says no.
func TestUnclearNamespaces(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		for _, name := range []string{"db", "gone", "lost", "narrowed", "no", "typed"} {
			c.put(newSource(name, "1"))
		}
		c.put(newNamespace("team-a", marked))
		stop := c.run()
		kittest.Pass(time.Minute)
		c.put(newNamespace("team-a", valued("ture")))
		kittest.Pass(time.Minute)
		const words = `team-a Warning: UnclearAnnotation: No copy here is created, changed or deleted until it is clear what is meant, unless its source says no: ` +
			`annotation example.com/share is "ture": for yes, it must be empty or "true"; for no, "false"`
		equal(t, "events", []string{words}, c.events())
		c.writes()
		c.put(newSource("db", "2"))
		c.put(newSource("narrowed", "1", saying(AnnotationNamespaces, "team-b")))
		c.put(newSource("typed", "1", ofType("example.com/other")))
		c.put(newSource("new", "1"), newSource("claimed", "1"), newSource("labeled", "1"))
		labeled := foreign("team-a", "labeled")
		labeled.Labels = map[string]string{LabelSourceNamespace: "vault"}
		c.put(planted("team-a", "claimed"), labeled)
		c.lacks("vault", "gone")
		c.lacks("team-a", "lost")
		kittest.Pass(time.Hour)
		stop()
		c.run()
		kittest.Pass(time.Hour)
		equal(t, "writes", nil, c.writes())
		equal(t, "data", newSource("db", "1").Data, c.secret("team-a", "db").Data)
		equal(t, "events of two processes", []string{words}, c.events())
		requireProblems(t, map[string]int64{ReasonUnclear: 1})
		c.put(newSource("no", "1", saying(usual.Annotation, "no")))
		kittest.Pass(time.Minute)
		equal(t, "writes when a source says no", []string{"delete team-a/no"}, c.writes())

		c.put(newNamespace("team-a", marked))
		kittest.Pass(2 * time.Minute)
		var copies []string
		for _, name := range c.names() {
			if name, isCopy := strings.CutPrefix(name, "team-a/"); isCopy {
				copies = append(copies, name)
			}
		}
		equal(t, "Secrets when it is clear", []string{"claimed", "db", "labeled", "lost", "new", "typed"}, copies)
		equal(t, "data when it is clear", newSource("db", "2").Data, c.secret("team-a", "db").Data)
		equal(t, "type when it is clear", "example.com/other", c.secret("team-a", "typed").Type)
		requireProblems(t, nil)
	})
}
