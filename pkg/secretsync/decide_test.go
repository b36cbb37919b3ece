package secretsync

import (
	"bytes"
	"encoding/json"
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
//	go test ./pkg/secretsync -run TestDecide -rewrite
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

// observe reads what is observed from a test's input, one object in each line.
func observe(t *testing.T, d *datadriven.TestData) (o Observed) {
	t.Helper()
	o = Observed{Config: usual, GoneFor: grace, SourceNS: newNamespace(usual.SourceNamespace)}
	for line := range strings.Lines(d.Input) {
		object, args, err := datadriven.ParseLine(line)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		switch object {
		case "source-namespace":
			for _, arg := range args {
				switch value := first(arg.Vals); arg.Key {
				case "gone":
					o.SourceNS = nil
				case "deleting":
					ending(o.SourceNS)
				case "uid":
					o.SourceNS.UID = types.UID(value)
				default:
					d.Fatalf(t, "unknown word %q in %q", arg.Key, line)
				}
			}
		case "target":
			o.TargetNS = newNamespace("team-a")
			for _, arg := range args {
				switch value := first(arg.Vals); arg.Key {
				case "name":
					o.TargetNS.Name = value
				case "marked":
					marked(o.TargetNS)
				case "mark":
					metav1.SetMetaDataAnnotation(&o.TargetNS.ObjectMeta, usual.Annotation, value)
				case "deleting":
					ending(o.TargetNS)
				default:
					d.Fatalf(t, "unknown word %q in %q", arg.Key, line)
				}
			}
		case "source":
			o.Source = newSource("db", "1", editsOf(t, d, args)...)
		case "copy":
			o.Copy = copied(newSource("db", "1"), editsOf(t, d, args)...)
		case "source-gone-for":
			o.GoneFor = parseDuration(t, d, args[0].Key)
		case "confirmed":
			o.Confirmed = Hold(strings.TrimSpace(strings.TrimPrefix(line, object)))
		case "brake":
			o.Brake = strings.TrimSpace(strings.TrimPrefix(line, object))
		default:
			d.Fatalf(t, "unknown object %q", object)
		}
	}
	return o
}

// editsOf returns what the words behind "source" or "copy" change.
func editsOf(t *testing.T, d *datadriven.TestData, args []datadriven.CmdArg) (edits []func(*corev1.Secret)) {
	t.Helper()
	for _, arg := range args {
		value := first(arg.Vals)
		edits = append(edits, func(s *corev1.Secret) {
			switch arg.Key {
			case "value":
				s.Data = newSource("db", value).Data
			case "uid":
				s.UID = types.UID(value)
			case "type":
				s.Type = corev1.SecretType(value)
			case "immutable":
				immutable(s)
			case "unmarked":
				delete(s.Annotations, usual.Annotation)
			case "for":
				s.Annotations[AnnotationNamespaces] = value
			case "selector":
				s.Annotations[AnnotationNamespaceSelector] = value
			case "annotation":
				s.Annotations[value] = "x"
			case "deleting":
				ending(s)
			case "finalizer":
				s.Finalizers = append(s.Finalizers, value)
			case "label":
				s.Labels[value] = ""
			case "copy-of":
				s.Annotations[AnnotationSourceName] = value
			case "made-for":
				s.Annotations[AnnotationMadeFor] = value
			case "only-labeled":
				s.Annotations = map[string]string{}
			case "mark":
				s.Annotations[usual.Annotation] = value
			case "from-namespace-uid":
				s.Annotations[AnnotationSourceNamespaceUID] = value
			default:
				d.Fatalf(t, "unknown word %q", arg.Key)
			}
		})
	}
	return edits
}

func first(values []string) string { return strings.Join(values, ", ") }

func parseDuration(t *testing.T, d *datadriven.TestData, text string) time.Duration {
	t.Helper()
	duration, err := time.ParseDuration(text)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return duration
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

// Nothing that a stranger writes makes an entry of the caches large.
func TestStrangersFillNoCache(t *testing.T) {
	large := planted("team-a", "db")
	for i := range 1000 {
		large.Labels[fmt.Sprintf("label-%d", i)], large.Annotations[fmt.Sprintf("note-%d", i)] = "x", strings.Repeat("x", 200)
		large.Finalizers = append(large.Finalizers, fmt.Sprintf("example.com/%d", i))
		large.ManagedFields = append(large.ManagedFields, metav1.ManagedFieldsEntry{Manager: "x", FieldsV1: metav1.NewFieldsV1(strings.Repeat("x", 100))})
		large.OwnerReferences = append(large.OwnerReferences, metav1.OwnerReference{Name: strings.Repeat("x", 100)})
		large.Data[fmt.Sprintf("key-%d", i)] = []byte(strings.Repeat("x", 100))
	}
	large.Annotations[AnnotationMadeFor] = strings.Repeat("x", 200_000)
	StripCopy(large)
	encoded, err := json.Marshal(large)
	if err != nil {
		t.Fatal(err)
	}
	if len(encoded) > 2000 {
		t.Errorf("the entry has %d bytes", len(encoded))
	}
	// A part of a long string would keep all of it in memory.
	var all []*corev1.Secret
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for range 100 {
		copied := planted("team-a", "db")
		copied.Annotations[AnnotationMadeFor] = strings.Repeat("x", 200_000)
		StripCopy(copied)
		all = append(all, copied)
	}
	if each := (int64(heap()) - int64(before)) / 100; each > 10_000 {
		t.Errorf("each entry takes %d bytes of the heap", each)
	}
	runtime.KeepAlive(all)
}
