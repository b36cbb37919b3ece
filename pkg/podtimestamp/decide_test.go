package podtimestamp

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/kit/difftest"
)

// now is noon in UTC, on a clock in another time zone.
var now = time.Date(2026, time.July, 1, 14, 0, 0, 999, time.FixedZone("elsewhere", 2*60*60))

const noon = "2026-07-01T12:00:00Z"

// podWith returns a Pod with annotations, given as alternating keys and values.
func podWith(annotations ...string) *metav1.PartialObjectMetadata {
	pod := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "parlor", Name: "sundae", UID: "uid-of-sundae", ResourceVersion: "7"}}
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
		{"does not ask", podWith(), ""},
		{"similar annotations are not enough", podWith("add-time", "true", "example.com/addtime", "true"), ""},
		{"asks", podWith("addtime", "true"), noon},
		{"asks, without a value", podWith("addtime", ""), noon},
		{"asks, with any value", podWith("addtime", "false"), noon},
		{"asks and has a timestamp", podWith("addtime", "", "timestamp", "2020-01-01T00:00:00Z"), ""},
		{"someone else has set the timestamp", podWith("addtime", "", "timestamp", "tomorrow"), ""},
		{"someone else has set an empty timestamp", podWith("addtime", "", "timestamp", ""), ""},
		{"has a timestamp and does not ask", podWith("timestamp", ""), ""},
		{"is gone", nil, ""},
		{"is being deleted", terminating(podWith("addtime", "")), ""},
		{"mirrors a static Pod", podWith("addtime", "", "kubernetes.io/config.mirror", "hash"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Decide(Observed{Now: now, Pod: test.pod}); got.Timestamp != test.want {
				t.Errorf("timestamp %q, want %q", got.Timestamp, test.want)
			}
		})
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

// A decision is the same for a Pod and for what the cache keeps of it, and does not change
// the Pod. Only a Pod that asks and has no timestamp gets one, and once it has it, there
// is nothing left to decide.
func TestDecisionsComeToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := pods().Draw(t, "pod")
		before := pod.DeepCopy()
		o := Observed{Now: time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "now"), 0), Pod: pod}
		d := Decide(o)
		cached := pod.DeepCopy()
		strip(cached)
		if diff := difftest.Diff(d, Decide(Observed{Now: o.Now, Pod: cached})); diff != "" {
			t.Fatalf("the decision for the cached Pod differs (+):\n%s", diff)
		}
		if diff := difftest.Diff(before, pod); diff != "" {
			t.Fatalf("Decide changed the Pod (-before +after):\n%s", diff)
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
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, AnnotationTimestamp, d.Timestamp)
		if d := Decide(o); d.Timestamp != "" {
			t.Fatalf("a second timestamp: %q", d.Timestamp)
		}
	})
}
