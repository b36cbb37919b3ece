package icecream

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kittest"
)

// How much heap the cache needs for each Pod, with its key and its index. There are more Pods
// than anything else.
func TestHeapPerPod(t *testing.T) {
	const pods, atMost = 5_000, 4_000
	ready := metav1.NewTime(time.Now())
	raw, err := json.Marshal(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "parlor", Name: "sundae-59b69c8b7d-00000", UID: "7c9e6679-7425-40de-944b-e07fc1f00000", ResourceVersion: "1234500000",
			CreationTimestamp: ready,
			Labels: map[string]string{
				LabelIcecream: "sundae", "pod-template-hash": "59b69c8b7d",
				"app.kubernetes.io/name": "icecream", "app.kubernetes.io/managed-by": FieldManager,
			},
			Annotations: map[string]string{"example.com/history": strings.Repeat("melted ", 100)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "sundae-59b69c8b7d", Controller: ptr.To(true),
				UID: "a8098c1a-f86e-11da-bd1a-001124400000",
			}},
			ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(`{"f:a":"` + strings.Repeat("managed", 200) + `"}`)}},
		},
		Spec: corev1.PodSpec{
			NodeName:   "node-00000.europe-west.example",
			Containers: []corev1.Container{{Name: "icecream", Image: "registry.example/vanilla:1", Env: make([]corev1.EnvVar, 20)}},
		},
		Status: kittest.ReadyStatus("icecream", "registry.example/vanilla:1", ready.Time),
	})
	if err != nil {
		t.Fatal(err)
	}
	all := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{"label": func(obj any) ([]string, error) {
		pod := obj.(*corev1.Pod)
		return []string{pod.Namespace + "/" + pod.Labels[LabelIcecream]}, nil
	}})
	before := heap()
	for i := range pods {
		pod := &corev1.Pod{}
		if err := json.Unmarshal([]byte(strings.ReplaceAll(string(raw), "00000", fmt.Sprintf("%05d", i))), pod); err != nil {
			t.Fatal(err)
		}
		kept, err := StripPod(pod)
		if err != nil {
			t.Fatal(err)
		}
		if err := all.Add(kept); err != nil {
			t.Fatal(err)
		}
	}
	if each := (heap() - before) / pods; each > atMost {
		t.Errorf("each takes %d bytes, want at most %d", each, atMost)
	} else {
		t.Logf("%d bytes each", each)
	}
	runtime.KeepAlive(all)
}

// heap returns how many bytes of the heap are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
