package main

import (
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// vault is the source namespace.
const vault = "vault"

// begun is when the source namespace was created.
var begun = time.Date(2026, time.July, 1, 12, 0, 0, 0, time.UTC)

// seen returns what is observed of db in team-a if there is nothing but the source namespace.
func seen() Observed {
	return Observed{
		Name: types.NamespacedName{Namespace: "team-a", Name: "db"}, SourceNamespace: vault, UnwantedFor: grace,
		SourceNS: newNamespace(vault, aged(begun)),
	}
}

func aged(created time.Time) func(metav1.Object) {
	return func(obj metav1.Object) { obj.SetCreationTimestamp(metav1.NewTime(created)) }
}

// copied returns the copy of a source in team-a, as the cache has it, a minute after the source namespace was created.
func copied(source *corev1.Secret, edits ...func(*corev1.Secret)) *corev1.Secret {
	o := seen()
	o.Source = source
	secret := o.want()
	secret.UID, secret.ResourceVersion = "copy", "7"
	aged(begun.Add(time.Minute))(secret)
	for _, edit := range edits {
		edit(secret)
	}
	stripCopy(secret)
	return secret
}

// The files in testdata/decide are tables of what is observed and what is decided. Their
// first file explains the words. After a deliberate change, run
//
//	go test ./apps/secretsync -run TestDecide -rewrite
//
// and review what has changed.
func TestDecide(t *testing.T) {
	datadriven.Walk(t, "testdata/decide", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			if d.Cmd != "decide" {
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			o := observe(t, d)
			decision := Decide(o)
			requireConsistent(t, d, o, decision)
			return describe(decision)
		})
	})
}

// words are what can stand behind an object in a test's input, and what it makes of the object.
var words = map[string]func(obj metav1.Object, value string){
	"says":      func(obj metav1.Object, value string) { annotate(obj, Annotation, value) },
	"silent":    func(obj metav1.Object, _ string) { delete(obj.GetAnnotations(), Annotation) },
	"deleting":  func(obj metav1.Object, _ string) { ending(obj) },
	"younger":   func(obj metav1.Object, _ string) { aged(begun.Add(time.Hour))(obj) },
	"immutable": func(obj metav1.Object, _ string) { immutable(obj.(*corev1.Secret)) },
	"label":     func(obj metav1.Object, value string) { obj.GetLabels()[value] = "" },
	"made-for":  func(obj metav1.Object, value string) { annotate(obj, AnnotationMadeFor, value) },
	"unmade":    func(obj metav1.Object, _ string) { delete(obj.GetAnnotations(), AnnotationMadeFor) },
	"name":      func(obj metav1.Object, value string) { obj.SetName(value) },
	"type":      func(obj metav1.Object, value string) { obj.(*corev1.Secret).Type = corev1.SecretType(value) },
	"empty":     func(obj metav1.Object, _ string) { obj.(*corev1.Secret).Data = nil },
	"value":     func(obj metav1.Object, value string) { obj.(*corev1.Secret).Data = newSource("db", value).Data },
}

// observe reads what is observed from a test's input, one object in each line.
func observe(t *testing.T, d *datadriven.TestData) Observed {
	t.Helper()
	o := seen()
	for line := range strings.Lines(d.Input) {
		object, args, err := datadriven.ParseLine(line)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		edit := func(obj metav1.Object) {
			for _, arg := range args {
				change, isKnown := words[arg.Key]
				if !isKnown {
					d.Fatalf(t, "unknown word %q in %q", arg.Key, line)
				}
				change(obj, strings.Join(arg.Vals, ", "))
			}
		}
		switch rest := strings.TrimSpace(strings.TrimPrefix(line, object)); {
		case object == "source-namespace" && rest == "gone":
			o.SourceNS = nil
		case object == "source-namespace":
			edit(o.SourceNS)
		case object == "target":
			o.TargetNS = newNamespace("team-a", marked, edit)
			o.Name.Namespace = o.TargetNS.Name
		case object == "source":
			o.Source = newSource("db", "1", func(s *corev1.Secret) { edit(s) })
		case object == "copy":
			o.Copy = copied(newSource("db", "1"), func(s *corev1.Secret) { edit(s) })
		case object == "unwanted-for":
			if o.UnwantedFor, err = time.ParseDuration(rest); err != nil {
				d.Fatalf(t, "%v", err)
			}
		default:
			d.Fatalf(t, "unknown object %q", object)
		}
	}
	if o.TargetNS != nil {
		o.Unwanted = o.bothSides().why
	}
	return o
}

// requireConsistent checks what holds for every decision.
func requireConsistent(t *testing.T, at *datadriven.TestData, o Observed, d Decision) {
	t.Helper()
	if d.Action != None && d.Problem != (Problem{}) || d.Action == Delete && d.Unwanted == "" {
		t.Errorf("%s: %+v", at.Pos, d)
	}
	if (d.Action == Create || d.Action == Update || d.Action == Replace) != (d.Action != None && o.IsWanted()) {
		t.Errorf("%s: %s, although it is %t that a copy is wanted", at.Pos, d.Action, o.IsWanted())
	}
}

// describe returns a decision in words.
func describe(d Decision) string {
	text := string(d.Action)
	if d.Why != "" {
		text += ", because " + d.Why
	}
	if d.RequeueAfter > 0 {
		text += ", and decide again after " + d.RequeueAfter.String()
	}
	if d.Problem != (Problem{}) {
		text += fmt.Sprintf("\n%s %s: %s: %s", d.Problem.About.Kind, d.Problem.About.Name, d.Problem.Reason, d.Problem.Message)
	}
	return text
}

// A patch sets what is ours, and leaves what others have added. It replaces all data, and means the same whatever
// the copy contains.
func TestPatch(t *testing.T) {
	const observed = `[{"op":"add","path":"/metadata/uid","value":"copy"},{"op":"add","path":"/metadata/resourceVersion","value":"7"},`
	for name, tt := range map[string]struct {
		source, copied *corev1.Secret
		want           string
	}{
		"other data":    {newSource("db", "2"), copied(newSource("db", "1")), `{"op":"add","path":"/data","value":{"password":"aHVudGVyMjI=","user":"aHVudGVyMmFkbWlu"}}]`},
		"no data":       {newSource("db", "2", empty), copied(newSource("db", "1")), `{"op":"add","path":"/data","value":{}}]`},
		"immutable now": {newSource("db", "1", immutable), copied(newSource("db", "1")), `{"op":"add","path":"/immutable","value":true}]`},
		"only labeled": {
			newSource("db", "1"), copied(newSource("db", "1"), func(s *corev1.Secret) { s.Annotations = nil }),
			`{"op":"add","path":"/metadata/annotations","value":{"controller.nicoleh.io/secretsync-made-for":"team-a/db"}}]`,
		},
	} {
		o := seen()
		o.Source, o.Copy = tt.source, tt.copied
		kind, body, err := o.patch()
		if err != nil || kind != types.JSONPatchType {
			t.Fatal(err)
		}
		equal(t, name, observed+tt.want, string(body))
	}
}

func empty(secret *corev1.Secret) { secret.Data = nil }

// Decide never changes its input, always returns the same for the same input, and has
// nothing to do after its decision was carried out.
func TestDecisionsComeToRest(t *testing.T) {
	secret := rapid.Custom(func(t *rapid.T) *corev1.Secret {
		s := newSource("db", rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value"), ofType(rapid.SampledFrom([]corev1.SecretType{"", "Opaque", "x"}).Draw(t, "type")))
		s.Immutable = rapid.SampledFrom([]*bool{nil, ptr.To(false), ptr.To(true)}).Draw(t, "immutable")
		for name, edit := range map[string]func(*corev1.Secret){
			"empty": empty, "ends": func(s *corev1.Secret) { ending(s) }, "silent": unmarked, "listed": listing("team-b"),
		} {
			if rapid.IntRange(0, 5).Draw(t, name) == 0 {
				edit(s)
			}
		}
		return s
	})
	rapid.Check(t, func(rt *rapid.T) {
		o := seen()
		if rapid.IntRange(0, 5).Draw(rt, "namespace") > 0 {
			o.Name.Namespace = rapid.SampledFrom([]string{"team-a", "team-a", "kube-system", "vault"}).Draw(rt, "name")
			o.TargetNS = newNamespace(o.Name.Namespace)
			if says := rapid.SampledFrom([]string{"", "", "false", "ture", "-"}).Draw(rt, "says"); says != "-" {
				saying(says)(o.TargetNS)
			}
		}
		if rapid.IntRange(0, 5).Draw(rt, "source") > 0 {
			o.Source = secret.Draw(rt, "source")
		}
		if o.TargetNS != nil && rapid.Bool().Draw(rt, "copy") {
			o.Copy = secret.Draw(rt, "copy")
			o.Copy.Namespace = o.TargetNS.Name
			o.Copy.Labels = map[string]string{LabelSourceNamespace: vault}
			o.Copy.Annotations = map[string]string{AnnotationMadeFor: rapid.SampledFrom([]string{o.Name.String(), o.Name.String(), "", "elsewhere/db"}).Draw(rt, "made for")}
			stripCopy(o.Copy)
		}
		shown := o
		shown.TargetNS, shown.Source, shown.Copy = o.TargetNS.DeepCopy(), o.Source.DeepCopy(), o.Copy.DeepCopy()
		d := Decide(o)
		if diff := cmp.Diff(d, Decide(o)); diff != "" {
			rt.Errorf("decided once and again:\n%s", diff)
		}
		if diff := cmp.Diff(shown, o); diff != "" {
			rt.Errorf("changed what it was shown:\n%s", diff)
		}
		if (d.Action == Delete || d.Action == Replace) && !o.isMade() {
			rt.Errorf("%s of what was not made for this place", d.Action)
		}
		switch d.Action {
		case Create, Replace:
			o.Copy = o.want()
			stripCopy(o.Copy)
		case Update:
			updated := o.want()
			updated.Immutable = ptr.To(isImmutable(o.Source) || isImmutable(o.Copy))
			o.Copy = updated
			stripCopy(o.Copy)
		case Delete:
			o.Copy = nil
		default:
		}
		if after := Decide(o); after.Action != None {
			rt.Errorf("%s, and then %s", d.Action, after.Action)
		}
	})
}

// The caches hold no data of any Secret, and digests that do not depend on how there is none.
func TestStrip(t *testing.T) {
	for _, strip := range []func(*corev1.Secret){stripCopy, stripSource} {
		secret := newSource("db", "1")
		strip(secret)
		strip(secret) // a transform may see an object twice
		if strings.Contains(secret.String(), marker) || !hasSameData(secret, newSource("db", "1")) || hasSameData(secret, newSource("db", "2")) {
			t.Error("what a Secret contains is kept, or another digest")
		}
	}
	none := newSource("db", "1", empty)
	if digestOf(none) != digestOf(&corev1.Secret{Data: map[string][]byte{}}) || digestOf(none) == digestOf(&corev1.Secret{Data: map[string][]byte{"": nil}}) {
		t.Error("no data is the same as some, or differs from no data")
	}
	source := newSource("db", "1")
	stripSource(source)
	equal(t, "annotations of a source", map[string]string{Annotation: "*", digestKey: digestOf(source)}, source.Annotations)
}

// Nothing that a stranger writes makes an entry of the caches large. A part of a long string would
// keep all of it in memory.
func TestStrangersFillNoCache(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	var all []any
	for range 100 {
		namespace := newNamespace("team-a", saying(strings.Repeat("x", 200_000)), func(n metav1.Object) {
			for i := range 100 {
				annotate(n, fmt.Sprintf("note-%d", i), strings.Repeat("x", 200))
			}
			n.SetLabels(maps.Clone(n.GetAnnotations()))
		})
		stripNamespace(namespace)
		large := newSource("db", "1")
		large.Annotations[AnnotationMadeFor] = strings.Repeat("x", 200_000)
		for i := range 100 {
			words := strings.Repeat("x", 200)
			large.Labels[fmt.Sprintf("label-%d", i)], large.Annotations[fmt.Sprintf("note-%d", i)] = "x", words
			large.Finalizers = append(large.Finalizers, fmt.Sprintf("example.com/%d", i))
			large.ManagedFields = append(large.ManagedFields, metav1.ManagedFieldsEntry{Manager: "x", FieldsV1: metav1.NewFieldsV1(words)})
			large.OwnerReferences = append(large.OwnerReferences, metav1.OwnerReference{Name: words})
			large.Data[fmt.Sprintf("key-%d", i)] = []byte(words)
		}
		stripCopy(large)
		all = append(all, namespace, large)
	}
	if each := (heap() - before) / 100; each > 10_000 {
		t.Errorf("each entry takes %d bytes of the heap", each)
	}
	runtime.KeepAlive(all)
}

func equal[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// newNamespace returns a namespace, after some edits.
func newNamespace(name string, edits ...func(metav1.Object)) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, edit := range edits {
		edit(namespace)
	}
	return namespace
}

// newSource returns a Secret in the source namespace that is for all namespaces, after some edits.
func newSource(name, value string, edits ...func(*corev1.Secret)) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vault, Name: name,
			Labels: map[string]string{"app": "db"},
			Annotations: map[string]string{
				Annotation: "*", corev1.LastAppliedConfigAnnotation: `{"data":"` + marker + value + `"}`,
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "o"}},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{"password": []byte(marker + value), "user": []byte(marker + "admin")},
	}
	for _, edit := range edits {
		edit(secret)
	}
	return secret
}

// annotate sets an annotation.
func annotate(obj metav1.Object, key, value string) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	obj.SetAnnotations(annotations)
}

func marked(obj metav1.Object) { annotate(obj, Annotation, "yes") }

// saying returns an edit that sets the annotation of a namespace.
func saying(value string) func(metav1.Object) {
	return func(obj metav1.Object) { annotate(obj, Annotation, value) }
}

// listing returns an edit that sets the annotation of a source.
func listing(value string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Annotations[Annotation] = value }
}

func unmarked(secret *corev1.Secret) { delete(secret.Annotations, Annotation) }

func ending(obj metav1.Object) { obj.SetDeletionTimestamp(ptr.To(metav1.Now())) }

func immutable(secret *corev1.Secret) { secret.Immutable = ptr.To(true) }

func ofType(kind corev1.SecretType) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Type = kind }
}
