package secretsync

import (
	"bytes"
	"fmt"
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

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// copied returns the copy of a source in team-a, as the cache has it.
func copied(source *corev1.Secret, edits ...func(*corev1.Secret)) *corev1.Secret {
	o := Observed{Config: usual, SourceNS: newNamespace("vault"), TargetNS: newNamespace("team-a", marked), Source: source}
	secret := Decide(o).Want
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
			o, remember := observe(t, d)
			if remember != nil {
				o.Memory.Goal = Decide(o).Goal // unless the words say otherwise
				remember(&o.Memory)
			}
			decision := Decide(o)
			requireConsistent(t, d, o, decision)
			return describe(decision)
		})
	})
}

// observe reads what is observed from a test's input, one object in each line. remember
// fills the memory; it is nil if nothing is remembered.
func observe(t *testing.T, d *datadriven.TestData) (o Observed, remember func(*Memory)) {
	t.Helper()
	o = Observed{Config: usual, Now: noon, SourceNS: newNamespace(usual.SourceNamespace)}
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
				case "confirmed-until":
					metav1.SetMetaDataAnnotation(&o.SourceNS.ObjectMeta, AnnotationConfirm, noon.Add(parseDuration(t, d, value)).Format(time.RFC3339))
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
		case "brake":
			o.Memory.Brake = strings.TrimSpace(strings.TrimPrefix(line, object))
		case "remembered":
			remember = func(m *Memory) {
				m.WrittenAt, m.Writes = noon, 1
				for _, arg := range args {
					switch value := first(arg.Vals); arg.Key {
					case "writes":
						if _, err := fmt.Sscan(value, &m.Writes); err != nil {
							d.Fatalf(t, "%q: %v", line, err)
						}
					case "ago":
						m.WrittenAt = noon.Add(-parseDuration(t, d, value))
					case "other-goal":
						m.Goal = "another goal"
					case "altered":
						m.Altered = value
					case "reverted-by":
						m.RevertedBy = value
					default:
						d.Fatalf(t, "unknown word %q in %q", arg.Key, line)
					}
				}
			}
		default:
			d.Fatalf(t, "unknown object %q", object)
		}
	}
	return o, remember
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
			case "deleting":
				ending(s)
			case "finalizer":
				s.Finalizers = append(s.Finalizers, value)
			case "label":
				s.Labels[value] = ""
			case "copy-of":
				s.Annotations[AnnotationSourceName] = value
			case "instance":
				s.Annotations[AnnotationInstance] = value
			case "from-namespace":
				s.Annotations[AnnotationNamespace] = value
			case "no-namespace":
				delete(s.Annotations, AnnotationNamespace)
			case "mark":
				s.Annotations[usual.Annotation] = value
			case "no-instance":
				delete(s.Annotations, AnnotationInstance)
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
	if d.Want == nil {
		return
	}
	if diff := cmp.Diff(o.Source.Data, d.Want.Data); diff != "" || d.Want.Type != o.Source.Type {
		t.Errorf("%s: type %q, data (-want +got):\n%s", at.Pos, d.Want.Type, diff)
	}
	if isUpdate := d.Want.ResourceVersion != ""; isUpdate != (d.Action == Update) {
		t.Errorf("%s: %s with resource version %q", at.Pos, d.Action, d.Want.ResourceVersion)
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

// A copy has only the name of its source's metadata, and keeps what others have added to
// its own.
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
	want := metav1.ObjectMeta{
		Namespace: "team-a", Name: "db", UID: present.UID, ResourceVersion: present.ResourceVersion,
		Labels: map[string]string{LabelSourceNamespace: usual.SourceNamespace, "theirs": "yes"},
		Annotations: map[string]string{
			AnnotationSourceName:         "db",
			AnnotationSourceUID:          "source",
			AnnotationInstance:           usual.Annotation,
			AnnotationNamespace:          "team-a",
			AnnotationSourceNamespaceUID: "",
			"theirs":                     "yes",
		},
	}
	d := Decide(Observed{Config: usual, SourceNS: newNamespace("vault"), TargetNS: newNamespace("team-a", marked), Source: source, Copy: present})
	equal(t, "metadata", want, d.Want.ObjectMeta)
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
		o := Observed{Config: usual, SourceNS: newNamespace("vault")}
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
			StripCopy(o.Copy)
		}
		shown := Observed{Config: o.Config, SourceNS: o.SourceNS.DeepCopy(), TargetNS: o.TargetNS.DeepCopy(), Source: o.Source.DeepCopy(), Copy: o.Copy.DeepCopy()}
		d := Decide(o)
		if diff := cmp.Diff(d, Decide(o)); diff != "" {
			rt.Errorf("decided once and again:\n%s", diff)
		}
		if diff := cmp.Diff(shown, o); diff != "" {
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

// The caches hold neither the data of copies nor that of Secrets that are not copied.
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
