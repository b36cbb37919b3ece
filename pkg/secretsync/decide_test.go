package secretsync

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/kit/difftest"
)

// copied is the copy of a source in team-a, as the cache has it.
func copied(source *corev1.Secret, edits ...func(*corev1.Secret)) *corev1.Secret {
	o := Observed{Config: usual, Home: newNamespace("vault"), Namespace: newNamespace("team-a", marked), Source: source, Key: []byte("key")}
	secret := Decide(o).Want
	secret.UID, secret.ResourceVersion = "copy", "7"
	for _, edit := range edits {
		edit(secret)
	}
	StripCopy(secret)
	return secret
}

func TestDecide(t *testing.T) {
	team := newNamespace("team-a", marked)
	value := func(value string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Data = newSource("db", value).Data }
	}
	unmarked := func(s *corev1.Secret) { s.Annotations = nil }
	source := newSource("db", "1")
	for _, tt := range []struct {
		name    string
		o       Observed
		want    Action
		wantWhy string
	}{
		{"nothing is there", Observed{}, None, ""},
		{"a namespace without a source", Observed{Namespace: team}, None, ""},
		{"a source and no copy", Observed{Namespace: team, Source: source}, Create, ""},
		{"the copy is right", Observed{Namespace: team, Source: source, Copy: copied(source)}, None, ""},
		{"the source has changed", Observed{Namespace: team, Source: newSource("db", "2"), Copy: copied(source)}, Update, ""},
		{"the copy was edited", Observed{Namespace: team, Source: source, Copy: copied(source, value("mine"))}, Update, ""},
		{"the copy lost its hash", Observed{Namespace: team, Source: source, Copy: copied(source, func(s *corev1.Secret) { delete(s.Annotations, AnnotationContentHash) })}, Update, ""},
		{"others have added to the copy", Observed{Namespace: team, Source: source, Copy: copied(source, func(s *corev1.Secret) { s.Labels["theirs"] = "yes" })}, None, ""},
		{"another source of that name", Observed{Namespace: team, Source: newSource("db", "1", func(s *corev1.Secret) { s.UID = "another" }), Copy: copied(source)}, Update, ""},
		{"the source is immutable now", Observed{Namespace: team, Source: newSource("db", "1", immutable), Copy: copied(source)}, Update, ""},
		{"an immutable copy, and another source", Observed{Namespace: team, Source: newSource("db", "2"), Copy: copied(source, immutable)}, Replace, "it is immutable"},
		{"another type", Observed{Namespace: team, Source: newSource("db", "1", ofType("example.com/x")), Copy: copied(source)}, Replace, "its type has changed"},
		{"the source is gone", Observed{Namespace: team, Copy: copied(source)}, Delete, ""},
		{"the source ends", Observed{Namespace: team, Source: newSource("db", "1", func(s *corev1.Secret) { ending(s) }), Copy: copied(source)}, Delete, ""},
		{"the source is not marked any more", Observed{Namespace: team, Source: newSource("db", "1", unmarked), Copy: copied(source)}, Delete, ""},
		{"the namespace is not", Observed{Namespace: newNamespace("team-a"), Source: source, Copy: copied(source)}, Delete, ""},
		{"the namespace ends", Observed{Namespace: newNamespace("team-a", marked, ending), Source: source, Copy: copied(source)}, None, ""},
		{"the copy ends", Observed{Namespace: team, Source: source, Copy: copied(source, func(s *corev1.Secret) { ending(s) })}, None, ""},
		{"a copy of a copy under this name is in the way", Observed{Namespace: team, Source: source, Copy: copied(newSource("tls", "1"), func(s *corev1.Secret) { s.Name = "db" })}, Blocked, ""},
		{"another instance's copy is in the way", Observed{Namespace: team, Source: source, Copy: copied(source, func(s *corev1.Secret) { s.Annotations[AnnotationInstance] = "example.com/other" })}, Blocked, ""},
		{"another instance's copy", Observed{Namespace: team, Copy: copied(source, func(s *corev1.Secret) { s.Annotations[AnnotationInstance] = "example.com/other" })}, None, ""},
		{"a copy of a time before instances", Observed{Namespace: team, Copy: copied(source, func(s *corev1.Secret) { delete(s.Annotations, AnnotationInstance) })}, Delete, ""},
		{"a copy ends while its source changes", Observed{Namespace: team, Source: newSource("db", "2"), Copy: copied(source, func(s *corev1.Secret) { ending(s) })}, Blocked, ""},
		{"a copy that nobody wants ends", Observed{Namespace: team, Copy: copied(source, func(s *corev1.Secret) { ending(s) })}, Blocked, ""},
		{"a copy of a copy that nobody wants", Observed{Namespace: team, Copy: copied(newSource("tls", "1"), func(s *corev1.Secret) { s.Name = "db" })}, None, ""},
		{"kube-system", Observed{Namespace: newNamespace(metav1.NamespaceSystem, marked), Source: source}, None, ""},
		{"kube-public", Observed{Namespace: newNamespace(metav1.NamespacePublic, marked), Source: source}, None, ""},
		{"the source namespace itself", Observed{Namespace: newNamespace(usual.SourceNamespace, marked), Source: source}, None, ""},
		{"the key of hashes is marked", Observed{Namespace: team, Source: newSource(HashKey, "1")}, None, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.Config, tt.o.Home, tt.o.Key = usual, newNamespace("vault"), []byte("key")
			d := Decide(tt.o)
			if d.Action != tt.want || d.Why != tt.wantWhy {
				t.Fatalf("%s %q, want %s %q", d.Action, d.Why, tt.want, tt.wantWhy)
			}
			if d.Want == nil {
				return
			}
			if diff := difftest.Diff(tt.o.Source.Data, d.Want.Data); diff != "" || d.Want.Type != tt.o.Source.Type {
				t.Errorf("type %q, data (-want +got):\n%s", d.Want.Type, diff)
			}
			if isUpdate := d.Want.ResourceVersion != ""; isUpdate != (d.Action == Update) {
				t.Errorf("%s with resource version %q", d.Action, d.Want.ResourceVersion)
			}
		})
	}
}

// Of the source's metadata a copy has the name; of its own it keeps what others have
// added.
func TestWhatACopyCarries(t *testing.T) {
	source := newSource("db", "1", func(s *corev1.Secret) {
		s.UID = "source"
		s.Labels = map[string]string{"app": "vault"}
		s.Annotations["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
		s.OwnerReferences = []metav1.OwnerReference{{Kind: "Vault"}}
		s.Finalizers = []string{"example.com/wait"}
	})
	present := copied(newSource("db", "2"), func(s *corev1.Secret) {
		s.Labels["theirs"], s.Annotations["theirs"] = "yes", "yes"
	})
	for name, copyThere := range map[string]*corev1.Secret{"a new one": nil, "one that is there": present} {
		t.Run(name, func(t *testing.T) {
			want := metav1.ObjectMeta{
				Namespace: "team-a",
				Name:      "db",
				Labels:    map[string]string{LabelSourceNamespace: usual.SourceNamespace},
				Annotations: map[string]string{
					AnnotationSourceName:  "db",
					AnnotationSourceUID:   "source",
					AnnotationInstance:    usual.Annotation,
					AnnotationContentHash: contentHash([]byte("key"), source),
				},
			}
			if copyThere != nil {
				want.Annotations[AnnotationHomeUID] = ""
				want.UID, want.ResourceVersion = copyThere.UID, copyThere.ResourceVersion
				maps.Copy(want.Labels, map[string]string{"theirs": "yes"})
				maps.Copy(want.Annotations, map[string]string{"theirs": "yes"})
			}
			d := Decide(Observed{Config: usual, Namespace: newNamespace("team-a", marked), Source: source, Copy: copyThere, Key: []byte("key")})
			if diff := difftest.Diff(want, d.Want.ObjectMeta); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Who has the hash and not the key cannot try values.
func TestContentHash(t *testing.T) {
	one := contentHash([]byte("key"), newSource("db", "1"))
	for name, other := range map[string]string{
		"another key":     contentHash([]byte("other"), newSource("db", "1")),
		"another value":   contentHash([]byte("key"), newSource("db", "2")),
		"another name":    contentHash([]byte("key"), newSource("other", "1")),
		"another type":    contentHash([]byte("key"), newSource("db", "1", ofType("example.com/x"))),
		"not to change":   contentHash([]byte("key"), newSource("db", "1", immutable)),
		"another field":   contentHash([]byte("key"), newSource("db", "1", func(s *corev1.Secret) { s.Data["x"] = nil })),
		"no field at all": contentHash([]byte("key"), newSource("db", "1", func(s *corev1.Secret) { s.Data = nil })),
	} {
		if one == other {
			t.Errorf("%s: the same hash", name)
		}
	}
	if again := contentHash([]byte("key"), newSource("db", "1")); one != again {
		t.Errorf("the same Secret has %s and %s", one, again)
	}
}

// Decide never changes what it was shown, says the same for the same, and is
// content with what it asked for.
func TestDecisionsComeToRest(t *testing.T) {
	secret := rapid.Custom(func(t *rapid.T) *corev1.Secret {
		s := newSource("db", rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value"), ofType(rapid.SampledFrom([]corev1.SecretType{"", "Opaque", "x"}).Draw(t, "type")))
		if rapid.Bool().Draw(t, "unmarked") {
			s.Annotations = nil
		}
		s.Immutable = rapid.SampledFrom([]*bool{nil, ptr.To(false), ptr.To(true)}).Draw(t, "immutable")
		if rapid.IntRange(0, 5).Draw(t, "ends") == 0 {
			ending(s)
		}
		return s
	})
	rapid.Check(t, func(rt *rapid.T) {
		o := Observed{Config: usual, Home: newNamespace("vault"), Key: []byte("key")}
		if rapid.IntRange(0, 5).Draw(rt, "namespace") > 0 {
			o.Namespace = newNamespace(rapid.SampledFrom([]string{"team-a", "team-a", "kube-system", "vault"}).Draw(rt, "name"))
			if rapid.Bool().Draw(rt, "marked") {
				marked(o.Namespace)
			}
		}
		if rapid.IntRange(0, 5).Draw(rt, "source") > 0 {
			o.Source = secret.Draw(rt, "source")
		}
		if o.Namespace != nil && rapid.Bool().Draw(rt, "copy") {
			o.Copy = secret.Draw(rt, "copy")
			o.Copy.Namespace = o.Namespace.Name
			o.Copy.Labels = map[string]string{LabelSourceNamespace: rapid.SampledFrom([]string{"vault", "vault", "other"}).Draw(rt, "label")}
			StripCopy(o.Copy)
		}
		shown := Observed{Config: o.Config, Home: o.Home.DeepCopy(), Namespace: o.Namespace.DeepCopy(), Source: o.Source.DeepCopy(), Copy: o.Copy.DeepCopy(), Key: o.Key}
		d := Decide(o)
		if diff := difftest.Diff(d, Decide(o)); diff != "" {
			rt.Errorf("decided once and again:\n%s", diff)
		}
		if diff := difftest.Diff(shown, o); diff != "" {
			rt.Errorf("changed what it was shown:\n%s", diff)
		}
		if (d.Action == Create || d.Action == Update || d.Action == Replace) != (d.Want != nil) {
			rt.Errorf("%s, and something to write: %t", d.Action, d.Want != nil)
		}
		switch d.Action {
		case Create, Update, Replace:
			o.Copy = d.Want.DeepCopy()
			StripCopy(o.Copy)
		case Delete:
			o.Copy = nil
		default:
		}
		if after := Decide(o); after.Action != None && after.Action != Blocked {
			rt.Errorf("%s, and then %s", d.Action, after.Action)
		}
	})
}

// What is in the caches: no data of copies, nor of Secrets that are not copied.
func TestStrip(t *testing.T) {
	copied := newSource("db", "1")
	StripCopy(copied)
	digest := digestOf(newSource("db", "1"))
	StripCopy(copied) // a transform may see an object twice
	if strings.Contains(fmt.Sprintf("%s", copied.Data), marker) || !bytes.Equal(digestOf(copied), digest) {
		t.Error("of a copy is kept what it holds, or another digest when it is seen again")
	}
	unmarked := newSource("db", "1", func(s *corev1.Secret) { delete(s.Annotations, usual.Annotation) })
	usual.StripSource(unmarked)
	if strings.Contains(fmt.Sprint(unmarked), marker) || len(unmarked.Data) > 0 {
		t.Errorf("of a Secret that is not copied is kept what it holds: %d fields", len(unmarked.Data))
	}
	source := newSource("db", "1")
	usual.StripSource(source)
	equal(t, "data of a source", newSource("db", "1").Data, source.Data)
	equal(t, "annotations of a source", map[string]string{usual.Annotation: ""}, source.Annotations)
}
