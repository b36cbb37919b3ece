package podproblem_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/podproblem"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

func podOf(kind string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "sundae-0", UID: "uid", ResourceVersion: "1",
			Labels: map[string]string{"kept": "x", "other": "y"}, Annotations: map[string]string{"kept": "z", "other": "y"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "Parlor"}, {Kind: kind, Name: "sundae", Controller: ptr.To(true)}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
		},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "scoop"}}},
		Status: corev1.PodStatus{
			Phase:             corev1.PodPending,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}, {Type: corev1.PodInitialized}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "scoop", ImageID: "id", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}}},
		},
	}
}

func TestKeep(t *testing.T) {
	keeper := &podproblem.Keeper{Kind: "StatefulSet", Keys: []string{"missing", "kept", "note"}}
	whole := podOf("StatefulSet")
	whole.Annotations["note"] = "z"
	kept := keeper.Keep(whole)
	if diff := cmp.Diff(podproblem.Of(whole), kept.Problem()); diff != "" || kept.Problem().Reason == "" {
		t.Errorf("the problem (-whole +kept):\n%s", diff)
	}
	if kept.Node() != "node-1" || kept.Value("missing") != "" || kept.Value("kept") != "x" || kept.Value("note") != "z" {
		t.Errorf("on %s, with %q, %q and %q", kept.Node(), kept.Value("missing"), kept.Value("kept"), kept.Value("note"))
	}
	if meta := kept.GetObjectMeta(); meta.GetName() != "sundae-0" || meta.GetResourceVersion() != "1" || kept.GetName() != "sundae-0" || kept.GetNamespace() != "" {
		t.Errorf("metadata %v", meta)
	}

	later := podOf("StatefulSet")
	later.Annotations["note"], later.Annotations["other"], later.ResourceVersion = "z", "of no interest", "2"
	if !keeper.Keep(later).IsAs(kept) {
		t.Error("what is not kept makes a difference")
	}
	for name, edit := range map[string]func(*corev1.Pod){
		"node":    func(p *corev1.Pod) { p.Spec.NodeName = "node-2" },
		"label":   func(p *corev1.Pod) { p.Labels["kept"] = "y" },
		"problem": func(p *corev1.Pod) { p.Status.ContainerStatuses = nil },
		"phase":   func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
	} {
		changed := later.DeepCopy()
		edit(changed)
		if keeper.Keep(changed).IsAs(kept) {
			t.Errorf("another %s makes no difference", name)
		}
	}
}

// A cache of a hundred thousand Pods has to fit into little memory.
func TestMemoryPerPod(t *testing.T) {
	keeper := &podproblem.Keeper{Kind: "ReplicaSet", Keys: []string{"kept"}}
	const pods = 10_000
	all := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{"kept": func(obj any) ([]string, error) { return []string{obj.(*podproblem.Pod).Value("kept")}, nil }})
	before := kittest.Heap()
	for i := range pods {
		pod := podOf("ReplicaSet")
		pod.Namespace, pod.Name, pod.ResourceVersion = "parlor", fmt.Sprintf("sundae-%d-7c8b9d5f4-%05d", i/10, i), fmt.Sprint(1_000_000+i)
		pod.Labels["kept"], pod.Status.ContainerStatuses = fmt.Sprintf("sundae-%d", i/10), nil
		if err := all.Add(keeper.Keep(pod)); err != nil {
			t.Fatal(err)
		}
	}
	if perPod := (kittest.Heap() - before) / pods; perPod > 500 {
		t.Errorf("each Pod takes %d bytes, want at most 500", perPod)
	} else {
		t.Logf("%d bytes per Pod", perPod)
	}
	runtime.KeepAlive(all)
}

func TestIsReplica(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"one that is starting":  {func(*corev1.Pod) {}, true},
		"another kind's":        {func(p *corev1.Pod) { p.OwnerReferences[1].Kind = "ReplicaSet" }, false},
		"one that was given up": {func(p *corev1.Pod) { p.OwnerReferences = nil }, false},
		"one that is ending":    {func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.Unix(1, 0)) }, false},
		"one that has failed":   {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
		"one that is done":      {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false},
	} {
		pod := podOf("StatefulSet")
		test.change(pod)
		if got := (&podproblem.Keeper{Kind: "StatefulSet"}).Keep(pod).IsReplica(); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
