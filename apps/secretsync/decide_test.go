package main

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// copied returns the copy of a source in team-a, as the cache has it.
func copied(source *corev1.Secret, edits ...func(*corev1.Secret)) *corev1.Secret {
	o := Observed{Config: usual, SourceNS: newNamespace("vault"), TargetNS: newNamespace("team-a", marked), Source: source}
	secret := o.want()
	secret.UID, secret.ResourceVersion = "copy", "7"
	for _, edit := range edits {
		edit(secret)
	}
	StripCopy(secret)
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
	"annotation":         func(obj metav1.Object, value string) { annotate(obj, value, "x") },
	"copy-of":            annotating(AnnotationSourceName),
	"deleting":           func(obj metav1.Object, _ string) { ending(obj) },
	"finalizer":          func(obj metav1.Object, value string) { obj.SetFinalizers([]string{value}) },
	"for":                annotating(AnnotationNamespaces),
	"from-namespace-uid": annotating(AnnotationSourceNamespaceUID),
	"immutable":          func(obj metav1.Object, _ string) { immutable(obj.(*corev1.Secret)) },
	"label":              func(obj metav1.Object, value string) { obj.GetLabels()[value] = "" },
	"made-for":           annotating(AnnotationMadeFor),
	"mark":               annotating(usual.Annotation),
	"marked":             func(obj metav1.Object, _ string) { marked(obj) },
	"name":               func(obj metav1.Object, value string) { obj.SetName(value) },
	"only-labeled":       func(obj metav1.Object, _ string) { obj.SetAnnotations(map[string]string{}) },
	"selector":           annotating(AnnotationNamespaceSelector),
	"type":               func(obj metav1.Object, value string) { obj.(*corev1.Secret).Type = corev1.SecretType(value) },
	"uid":                func(obj metav1.Object, value string) { obj.SetUID(types.UID(value)) },
	"unmarked":           func(obj metav1.Object, _ string) { delete(obj.GetAnnotations(), usual.Annotation) },
	"value":              func(obj metav1.Object, value string) { obj.(*corev1.Secret).Data = newSource("db", value).Data },
}

func annotating(key string) func(obj metav1.Object, value string) {
	return func(obj metav1.Object, value string) { annotate(obj, key, value) }
}

// observe reads what is observed from a test's input, one object in each line.
func observe(t *testing.T, d *datadriven.TestData) (o Observed) {
	t.Helper()
	o = Observed{Config: usual, GoneFor: grace, SourceNS: newNamespace(usual.SourceNamespace)}
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
			o.TargetNS = newNamespace("team-a", edit)
		case object == "source":
			o.Source = newSource("db", "1", func(s *corev1.Secret) { edit(s) })
		case object == "copy":
			o.Copy = copied(newSource("db", "1"), func(s *corev1.Secret) { edit(s) })
		case object == "source-gone-for":
			if o.GoneFor, err = time.ParseDuration(rest); err != nil {
				d.Fatalf(t, "%v", err)
			}
		case object == "confirmed":
			o.Confirmed = Hold(rest)
		case object == "brake":
			o.Brake = rest
		default:
			d.Fatalf(t, "unknown object %q", object)
		}
	}
	return o
}

// requireConsistent checks what holds for every decision.
func requireConsistent(t *testing.T, at *datadriven.TestData, o Observed, d Decision) {
	t.Helper()
	if d.isWrite() != (d.Ask.Goal != "" && d.Ask.Left != "" && d.Action != None) {
		t.Errorf("%s: %s, to do %+v", at.Pos, d.Action, d.Ask)
	}
	if (d.Problem.Reason == ReasonHeld) != (d.Hold != "") {
		t.Errorf("%s: %+v, held by %q", at.Pos, d.Problem, d.Hold)
	}
	if d.Action == Create || d.Action == Replace {
		equal(t, at.Pos+": data", o.Source.Data, o.want().Data)
		equal(t, at.Pos+": type", o.Source.Type, o.want().Type)
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
		text += "\n" + d.Problem.Reason + ": " + d.Problem.Message
	}
	return text
}

// A patch sets what is ours, and leaves what others have added.
func TestPatch(t *testing.T) {
	source := newSource("db", "2", immutable, func(s *corev1.Secret) { s.UID = "source" })
	o := Observed{Config: usual, SourceNS: newNamespace("vault"), TargetNS: newNamespace("team-a", marked), Source: source, Copy: copied(newSource("db", "1"))}
	body, err := o.patch()
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "patch", `{"data":{"$patch":"replace","password":"aHVudGVyMi0y","user":"aHVudGVyMi1hZG1pbg=="},"immutable":true,"metadata":{"annotations":{`+
		`"controller.nicoleh.io/secretsync-made-for":"team-a","controller.nicoleh.io/secretsync-source-name":"db","controller.nicoleh.io/secretsync-source-namespace-uid":""},`+
		`"labels":{"controller.nicoleh.io/secretsync-source-namespace":"vault"},"resourceVersion":"7","uid":"copy"}}`, string(body))
}

// Decide never changes its input, always returns the same for the same input, and has
// nothing to do after its decision was carried out.
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
		o := Observed{Config: usual, GoneFor: grace, SourceNS: newNamespace("vault")}
		if rapid.IntRange(0, 5).Draw(rt, "namespace") > 0 {
			o.TargetNS = newNamespace(rapid.SampledFrom([]string{"team-a", "team-a", "kube-system", "vault"}).Draw(rt, "name"))
			if rapid.Bool().Draw(rt, "marked") {
				marked(o.TargetNS)
			}
		}
		if rapid.IntRange(0, 5).Draw(rt, "source") > 0 {
			o.Source = secret.Draw(rt, "source")
		}
		if o.TargetNS != nil && rapid.Bool().Draw(rt, "copy") {
			o.Copy = secret.Draw(rt, "copy")
			o.Copy.Namespace = o.TargetNS.Name
			o.Copy.Labels = map[string]string{LabelSourceNamespace: rapid.SampledFrom([]string{"vault", "vault", "other"}).Draw(rt, "label")}
			if rapid.Bool().Draw(rt, "made") {
				o.Copy.Annotations = map[string]string{AnnotationSourceName: "db", AnnotationMadeFor: o.TargetNS.Name}
			}
			StripCopy(o.Copy)
		}
		shown := Observed{Config: o.Config, GoneFor: grace, SourceNS: o.SourceNS.DeepCopy(), TargetNS: o.TargetNS.DeepCopy(), Source: o.Source.DeepCopy(), Copy: o.Copy.DeepCopy()}
		d := Decide(o)
		if diff := cmp.Diff(d, Decide(o)); diff != "" {
			rt.Errorf("decided once and again:\n%s", diff)
		}
		if diff := cmp.Diff(shown, o); diff != "" {
			rt.Errorf("changed what it was shown:\n%s", diff)
		}
		switch d.Action {
		case Create, Replace:
			o.Copy = o.want()
			StripCopy(o.Copy)
		case Update:
			updated := o.want()
			updated.Immutable = ptr.To(isImmutable(o.Source) || isImmutable(o.Copy))
			o.Copy = updated
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

// The caches hold neither the data of copies nor that of Secrets that are not copied.
func TestStrip(t *testing.T) {
	copied := newSource("db", "1")
	StripCopy(copied)
	digest := digestOf(newSource("db", "1"))
	StripCopy(copied) // a transform may see an object twice
	if strings.Contains(copied.String(), marker) || !bytes.Equal(digestOf(copied), digest) {
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
	equal(t, "annotations of a source", map[string]string{usual.Annotation: "", digestKey: string(digest)}, source.Annotations)
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
	var all []*corev1.Secret
	for range 100 {
		large := planted("team-a", "db")
		large.Annotations[AnnotationMadeFor] = strings.Repeat("x", 200_000)
		for i := range 100 {
			words := strings.Repeat("x", 200)
			large.Labels[fmt.Sprintf("label-%d", i)], large.Annotations[fmt.Sprintf("note-%d", i)] = "x", words
			large.Finalizers = append(large.Finalizers, fmt.Sprintf("example.com/%d", i))
			large.ManagedFields = append(large.ManagedFields, metav1.ManagedFieldsEntry{Manager: "x", FieldsV1: metav1.NewFieldsV1(words)})
			large.OwnerReferences = append(large.OwnerReferences, metav1.OwnerReference{Name: words})
			large.Data[fmt.Sprintf("key-%d", i)] = []byte(words)
		}
		StripCopy(large)
		all = append(all, large)
	}
	if each := (heap() - before) / 100; each > 10_000 {
		t.Errorf("each entry takes %d bytes of the heap", each)
	}
	runtime.KeepAlive(all)
}
