package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
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

func terminate(pod *metav1.PartialObjectMetadata) {
	pod.DeletionTimestamp = ptr.To(metav1.NewTime(now))
}

func TestDecide(t *testing.T) {
	ending := podWith("addtime", "")
	terminate(ending)
	for _, test := range []struct {
		name string
		pod  *metav1.PartialObjectMetadata
		want string
	}{
		{"does not ask", podWith(), ""},
		{"similar annotations are not enough", podWith("add-time", "true", "example.com/addtime", "true"), ""},
		{"asks", podWith("addtime", "true"), noon},
		{"asks, with any value", podWith("addtime", "please"), noon},
		{"says no", podWith("addtime", "false"), ""},
		{"someone else has set the timestamp", podWith("addtime", "", "timestamp", "tomorrow"), ""},
		{"someone else has set an empty timestamp", podWith("addtime", "", "timestamp", ""), ""},
		{"is gone", nil, ""},
		{"is being deleted", ending, ""},
		{"mirrors a static Pod", podWith("addtime", "", "kubernetes.io/config.mirror", "hash"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Decide(test.pod, now); got != test.want {
				t.Errorf("timestamp %q, want %q", got, test.want)
			}
			if test.pod == nil {
				return
			}
			if got := Decide(stripped(t, test.pod), now); got != test.want {
				t.Errorf("for what the cache keeps of the Pod, timestamp %q, want %q", got, test.want)
			}
		})
	}
}

// stripped returns what the cache keeps of a Pod.
func stripped(t *testing.T, pod *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	t.Helper()
	obj, err := strip(pod)
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*metav1.PartialObjectMetadata)
}

// Each Pod needs the same memory in the cache, whatever it contains. That specs and statuses
// are not even transferred is tested with a real API server, in test/e2e.
func TestTheCacheKeepsLittle(t *testing.T) {
	fat := podWith("addtime", strings.Repeat("x", 10_000), "last-applied", "{}")
	fat.Labels = map[string]string{"app": "sundae"}
	fat.Finalizers = []string{"example.com/wait"}
	fat.OwnerReferences = []metav1.OwnerReference{{Name: "parlor"}}
	fat.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1("{}")}}
	if diff := cmp.Diff(podWith("addtime", ""), stripped(t, fat)); diff != "" {
		t.Errorf("the cache keeps (-want +got):\n%s", diff)
	}
}
