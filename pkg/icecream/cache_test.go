package icecream

import (
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
)

// deployed returns the plain Icecream's Deployment as the API server stores it.
func deployed(t *testing.T) *appsv1.Deployment {
	t.Helper()
	p := &parlor{TB: t}
	p.apply(newIcecream())
	return p.stored()
}

// Nothing that others can write makes an entry of a cache larger than a few kilobytes.
func TestEntriesAreSmall(t *testing.T) {
	const atMost = 12 << 10
	long := strings.Repeat("melted ", 200_000)
	var many []string
	keys := map[string]string{}
	for i := range 10_000 {
		key := fmt.Sprintf("example.com/note-%d", i)
		many = append(many, key)
		keys[key] = long[:100]
	}
	var owners []metav1.OwnerReference
	for _, name := range many {
		owners = append(owners, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: name, UID: "owner"})
	}
	meta := func(obj metav1.Object, owner metav1.OwnerReference) {
		owner.Controller = ptr.To(true)
		obj.SetAnnotations(maps.Clone(keys))
		obj.GetAnnotations()[patch.AnnotationAsked] = long
		obj.SetLabels(maps.Clone(keys))
		obj.GetLabels()[LabelIcecream] = "sundae"
		obj.SetFinalizers(many)
		obj.SetOwnerReferences(append(slices.Clone(owners), owner))
		fields := metav1.NewFieldsV1(`{"f:` + long + `":{}}`)
		obj.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: long}, {Manager: FieldManager, Operation: "Update", FieldsV1: fields}})
	}
	ice := newIcecream()
	meta(ice, metav1.OwnerReference{Kind: long})
	for _, state := range append(kstatus.States(), "Melting") {
		ice.Status.Conditions = append(ice.Status.Conditions, metav1.Condition{Type: string(state), Reason: long, Message: long})
	}
	container := corev1.Container{Name: containerName, Image: long, Args: many}
	for _, name := range many {
		container.Env = append(container.Env, corev1.EnvVar{Name: name, Value: long[:100]})
	}
	d := deployed(t)
	meta(d, d.OwnerReferences[0])
	d.Spec.Selector.MatchLabels = keys
	template := &d.Spec.Template
	meta(template, metav1.OwnerReference{})
	template.Spec.Containers = []corev1.Container{container, {Name: "sidecar", Args: many}}
	pod := newPod()
	meta(pod, pod.OwnerReferences[0])
	pod.Spec.Containers = template.Spec.Containers
	ended := corev1.ContainerState{
		Waiting:    &corev1.ContainerStateWaiting{Reason: long, Message: long},
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: long, Message: long},
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Reason: long, Message: long}
	for _, name := range many {
		pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: corev1.PodConditionType(name)})
		condition := corev1.PodCondition{Type: corev1.PodConditionType(name), Status: "False", Reason: long, Message: long}
		pod.Status.Conditions = append(pod.Status.Conditions, condition)
		container := corev1.ContainerStatus{Name: name, Image: long, State: ended, LastTerminationState: ended}
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, container)
	}
	for range 1000 { // of one type, which the API server admits
		pod.Status.Conditions = append(pod.Status.Conditions,
			corev1.PodCondition{Type: corev1.PodScheduled, Status: "False", Reason: long, Message: long},
			corev1.PodCondition{Type: corev1.PodReady, Status: "False", Reason: long, Message: long})
		d.Status.Conditions = append(d.Status.Conditions,
			appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: "False", Reason: long, Message: long})
	}
	for kind, test := range map[string]struct {
		strip func(any) (any, error)
		obj   any
	}{"Icecream": {StripIcecream, ice}, "Deployment": {StripDeployment, d}, "Pod": {StripPod, pod}} {
		kept, err := test.strip(test.obj)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(kept)
		if err != nil || len(raw) > atMost {
			t.Errorf("of the %s, %d bytes are kept, want at most %d: %v", kind, len(raw), atMost, err)
		}
		t.Logf("%s: %d bytes", kind, len(raw))
	}
	// A part of a long string or list would keep all of it.
	before := heap()
	var all []any
	for range 20 {
		huge := newPod(hasFailed(0))
		huge.Status.Message = strings.Repeat("melted ", 200_000)
		kept, _ := StripPod(huge)
		d := deployed(t)
		d.Spec.Template.Spec.Containers[0].Command = make([]string, 100_000)
		all = append(all, kept, stripped(d))
	}
	if each := (heap() - before) / 40; each > atMost {
		t.Errorf("of Pods with a long message and Deployments with a long command, each takes %d bytes of the heap", each)
	}
	runtime.KeepAlive(all)
}

// How much heap the cache needs for each Pod, with its key and its index. There are more Pods than anything else.
func TestHeapPerPod(t *testing.T) {
	const pods, atMost = 5_000, 4_000
	raw, err := json.Marshal(newPod(func(pod *corev1.Pod) {
		pod.Name, pod.UID, pod.ResourceVersion = "sundae-59b69c8b7d-00000", "7c9e6679-7425-40de-944b-e07fc1f00000", "1234500000"
		pod.Annotations = map[string]string{"example.com/history": strings.Repeat("melted ", 100)}
		maps.Copy(pod.Labels, labelsOf(newIcecream()))
		pod.OwnerReferences[0].UID = "a8098c1a-f86e-11da-bd1a-001124400000"
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(`{"f:a":"` + strings.Repeat("managed", 200) + `"}`)}}
		pod.Spec.NodeName = "node-00000.europe-west.example"
		pod.Spec.Containers = []corev1.Container{{Name: "icecream", Image: "registry.example/vanilla:1", Env: make([]corev1.EnvVar, 20)}}
	}))
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
		kept, _ := StripPod(pod)
		if err := all.Add(kept); err != nil {
			t.Fatal(err)
		}
	}
	each := (heap() - before) / pods
	t.Logf("%d bytes each", each)
	if each > atMost {
		t.Errorf("want at most %d", atMost)
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
