package podtimestamp

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/kit/difftest"
)

// now is noon in UTC, said by a clock that is elsewhere.
var now = time.Date(2026, time.July, 1, 14, 0, 0, 999, time.FixedZone("elsewhere", 2*60*60))

const noon = "2026-07-01T12:00:00Z"

// podWith is a Pod with these annotations, each followed by its value.
func podWith(annotations ...string) *metav1.PartialObjectMetadata {
	pod := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "parlour", Name: "sundae", UID: "uid-of-sundae", ResourceVersion: "7"}}
	for i := 0; i < len(annotations); i += 2 {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, annotations[i], annotations[i+1])
	}
	return pod
}

func terminating(pod *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	pod.DeletionTimestamp = ptr.To(metav1.NewTime(now))
	return pod
}

func TestDecide(t *testing.T) {
	for _, test := range []struct {
		name string
		pod  *metav1.PartialObjectMetadata
		want string
	}{
		{"it does not ask", podWith(), ""},
		{"it asks for something else", podWith("add-time", "true", "example.com/addtime", "true"), ""},
		{"it asks", podWith("addtime", "true"), noon},
		{"it asks without a value", podWith("addtime", ""), noon},
		{"it asks in other words", podWith("addtime", "false"), noon},
		{"it has its timestamp", podWith("addtime", "", "timestamp", "2020-01-01T00:00:00Z"), ""},
		{"somebody else has put something there", podWith("addtime", "", "timestamp", "tomorrow"), ""},
		{"somebody else has put nothing there", podWith("addtime", "", "timestamp", ""), ""},
		{"it has one and does not ask", podWith("timestamp", ""), ""},
		{"it is being deleted", terminating(podWith("addtime", "")), ""},
		{"it is the mirror of a static one", podWith("addtime", "", "kubernetes.io/config.mirror", "hash"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Decide(Observed{Now: now, Pod: test.pod}); got.Timestamp != test.want {
				t.Errorf("timestamp %q, want %q", got.Timestamp, test.want)
			}
		})
	}
}

func TestPatch(t *testing.T) {
	o := Observed{Now: now, Pod: podWith("addtime", "", "team", "parlour")}
	patch, err := Patch(o, Decide(o))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"metadata":{"annotations":{"timestamp":"` + noon + `"},"resourceVersion":"7","uid":"uid-of-sundae"}}`
	if diff := difftest.Diff(want, string(patch)); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
}

func pods() *rapid.Generator[*metav1.PartialObjectMetadata] {
	return rapid.Custom(func(t *rapid.T) *metav1.PartialObjectMetadata {
		pod := podWith()
		pod.Name, pod.UID, pod.ResourceVersion = rapid.String().Draw(t, "name"), types.UID(rapid.String().Draw(t, "uid")), rapid.String().Draw(t, "version")
		pod.Labels = rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "labels")
		keys := rapid.OneOf(rapid.SampledFrom([]string{"addtime", "timestamp", "kubernetes.io/config.mirror"}), rapid.String())
		pod.Annotations = rapid.MapOf(keys, rapid.String()).Draw(t, "annotations")
		pod.Finalizers = rapid.SliceOf(rapid.String()).Draw(t, "finalizers")
		if rapid.Bool().Draw(t, "terminating") {
			terminating(pod)
		}
		return pod
	})
}

// A decision is the same for the same Pod, for what a cache keeps of it, and leaves
// the Pod as it is. It is about a Pod that asks and has no timestamp, and with it
// carried out there is nothing left to decide.
func TestDecisionsComeToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := pods().Draw(t, "pod")
		before := pod.DeepCopy()
		o := Observed{Now: time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "now"), 0), Pod: pod}
		d := Decide(o)
		cached := pod.DeepCopy()
		strip(cached)
		if diff := difftest.Diff(d, Decide(Observed{Now: o.Now, Pod: cached})); diff != "" {
			t.Fatalf("another decision for the Pod in the cache (+):\n%s", diff)
		}
		if diff := difftest.Diff(before, pod); diff != "" {
			t.Fatalf("the Pod has changed (-before +after):\n%s", diff)
		}
		if d.Timestamp == "" {
			return
		}
		_, asks := pod.Annotations["addtime"]
		_, has := pod.Annotations["timestamp"]
		if !asks || has {
			t.Fatalf("a timestamp for %v", pod.Annotations)
		}
		if at, err := time.Parse(time.RFC3339, d.Timestamp); err != nil || !at.Equal(o.Now) {
			t.Fatalf("timestamp %q is not %s", d.Timestamp, o.Now)
		}
		patch, err := Patch(o, d)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(patch, pod); err != nil {
			t.Fatal(err)
		}
		if d := Decide(o); d.Timestamp != "" {
			t.Fatalf("a second timestamp: %q", d.Timestamp)
		}
	})
}
