package icecream

import (
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	clientsetscheme "nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/scheme"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/lenient"
)

// What a cache keeps of an Icecream includes why its spec could not be decoded.
func TestStripIcecreamKeepsTheDecodingProblem(t *testing.T) {
	info, _ := apiruntime.SerializerInfoForMediaType(lenient.Codecs(clientsetscheme.Codecs.WithoutConversion()).SupportedMediaTypes(), apiruntime.ContentTypeJSON)
	obj, err := apiruntime.Decode(info.Serializer, []byte(`{
		"apiVersion": "controller.nicoleh.io/v1alpha1", "kind": "Icecream",
		"metadata": {"name": "sundae", "namespace": "parlor", "managedFields": [{"manager": "kubectl"}],
			"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
		"spec": {"image": 5}, "status": {"replicas": 3}}`))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := StripIcecream(obj)
	if err != nil {
		t.Fatal(err)
	}
	ice := kept.(*v1alpha1.Icecream)
	const want = "spec.image: json: cannot unmarshal number into Go struct field IcecreamSpec.spec.image of type string"
	if got := lenient.DecodeError(ice, "spec"); got != want {
		t.Errorf("the problem is %q, want %q", got, want)
	}
	if _, isApplied := ice.Annotations[corev1.LastAppliedConfigAnnotation]; isApplied || ice.ManagedFields != nil || ice.Status.Replicas != 3 {
		t.Errorf("kept %+v", ice)
	}
}

// A Deployment keeps our fields if it is an Icecream's or could be adopted. What is decided from them
// is the same as from the whole, and so is each patch.
func TestStripDeployment(t *testing.T) {
	for name, test := range map[string]struct {
		edit   func(*appsv1.Deployment)
		isKept bool
	}{
		"an Icecream's":                 {func(*appsv1.Deployment) {}, true},
		"an Icecream's without a label": {func(d *appsv1.Deployment) { d.Labels = nil }, true},
		"an orphan":                     {orphaned, true},
		"somebody's":                    {func(d *appsv1.Deployment) { d.OwnerReferences[0].Kind, d.Labels = "Parlor", nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			kept := stripped(stored(t, newIcecream(), test.edit, func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers = append([]corev1.Container{{Name: "proxy", Image: "proxy:1"}}, d.Spec.Template.Spec.Containers...)
				d.Annotations = map[string]string{"example.com/note": "melted"}
			}))
			if isKept := len(kept.Spec.Template.Spec.Containers) > 0; isKept != test.isKept || isKept && kept.Spec.Template.Spec.Containers[0].Image != "" || kept.Annotations["example.com/note"] != "" {
				t.Errorf("kept %+v", kept)
			}
			if diff := cmp.Diff(kept, stripped(kept)); diff != "" {
				t.Errorf("what is kept of what was kept (-want +got):\n%s", diff)
			}
		})
	}
}

// Nothing that others can write makes an entry of a cache larger than a few kilobytes.
func TestEntriesAreSmall(t *testing.T) {
	const atMost = 12 << 10
	long := strings.Repeat("melted ", 200_000)
	var many []string
	keys, quantities := map[string]string{}, corev1.ResourceList{}
	for i := range 10_000 {
		key := fmt.Sprintf("example.com/note-%d", i)
		many = append(many, key)
		keys[key] = long[:100]
		quantities[corev1.ResourceName(key)] = resource.MustParse("1")
	}
	quantities["cpu"] = resource.MustParse("1" + strings.Repeat("0", 10_000))
	quantities["memory"] = resource.MustParse("1e30000000")
	var owners []metav1.OwnerReference
	for _, name := range many {
		owners = append(owners, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: name, UID: "owner"})
	}
	meta := func(obj metav1.Object, owner metav1.OwnerReference) {
		owner.Controller = ptr.To(true)
		obj.SetAnnotations(maps.Clone(keys))
		obj.GetAnnotations()[AnnotationSpecHash] = long
		obj.SetLabels(maps.Clone(keys))
		obj.GetLabels()[LabelIcecream] = "sundae"
		obj.SetFinalizers(many)
		obj.SetOwnerReferences(append(slices.Clone(owners), owner))
		obj.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: long}})
	}
	ice := newIcecream()
	meta(ice, metav1.OwnerReference{Kind: long})
	for _, state := range append(kstatus.States(), "Melting") {
		ice.Status.Conditions = append(ice.Status.Conditions, metav1.Condition{Type: string(state), Reason: long, Message: long})
	}
	container := corev1.Container{
		Name: containerName, Image: long, Args: many, Resources: corev1.ResourceRequirements{Limits: quantities, Requests: quantities},
		SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{}},
	}
	for _, name := range many {
		container.Env = append(container.Env, corev1.EnvVar{Name: name, Value: long[:100]})
		container.SecurityContext.Capabilities.Add = append(container.SecurityContext.Capabilities.Add, corev1.Capability(long[:30]))
	}
	d := made(t, newIcecream()).DeepCopy()
	meta(d, d.OwnerReferences[0])
	d.Spec.Selector.MatchLabels = keys
	template := &d.Spec.Template
	meta(template, metav1.OwnerReference{})
	template.Spec.NodeSelector = keys
	template.Spec.SecurityContext.SeccompProfile.LocalhostProfile = &long
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
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodConditionType(name), Status: "False", Reason: long, Message: long})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, Image: long, State: ended, LastTerminationState: ended})
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
	// A part of a long string would keep all of it.
	before := heap()
	var all []any
	for range 20 {
		huge := newPod()
		huge.Status.Phase, huge.Status.Message = corev1.PodFailed, strings.Repeat("melted ", 200_000)
		kept, _ := StripPod(huge)
		all = append(all, kept)
	}
	if each := (heap() - before) / 20; each > atMost {
		t.Errorf("each Pod with a long message takes %d bytes of the heap", each)
	}
	runtime.KeepAlive(all)
}

func TestWhichPodsCount(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*corev1.Pod)
		want bool
	}{
		"a ready one":                          {func(*corev1.Pod) {}, true},
		"one that is not ready":                {notReady(time.Minute), true},
		"one without a node":                   {unschedulable(time.Minute), true},
		"one that is being deleted":            {beingDeleted[*corev1.Pod], false},
		"one that was evicted, as a problem":   {func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }, true},
		"one that has ended well":              {func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }, false},
		"one that its ReplicaSet has released": {func(pod *corev1.Pod) { pod.OwnerReferences = nil }, false},
		"somebody else's, with our labels":     {func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = "Job" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, counts := PodOf(newPod(test.edit)); counts != test.want {
				t.Errorf("counts: %t", counts)
			}
		})
	}
}

// A Pod from the cache reads as the whole Pod does, and cache and indexes find what they need.
func TestStrippedPodsReadTheSame(t *testing.T) {
	state := rapid.Custom(func(t *rapid.T) corev1.ContainerState {
		return corev1.ContainerState{
			Waiting: rapid.Ptr(rapid.Custom(func(t *rapid.T) corev1.ContainerStateWaiting {
				return corev1.ContainerStateWaiting{Reason: rapid.SampledFrom([]string{"", "ErrImagePull", "CreateContainerError", "CrashLoopBackOff"}).Draw(t, "reason"), Message: genText(t)}
			}), true).Draw(t, "waiting"),
			Terminated: rapid.Ptr(rapid.Custom(func(t *rapid.T) corev1.ContainerStateTerminated {
				return corev1.ContainerStateTerminated{ExitCode: rapid.Int32Range(0, 1).Draw(t, "exit code"), Reason: rapid.SampledFrom([]string{"StartError", "Error", ""}).Draw(t, "end"), Message: genText(t)}
			}), true).Draw(t, "terminated"),
		}
	})
	container := rapid.Custom(func(t *rapid.T) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			Name: genName(t), Ready: rapid.Bool().Draw(t, "ready"), Image: genText(t), ImageID: "id",
			State: state.Draw(t, "state"), LastTerminationState: state.Draw(t, "last state"),
		}
	})
	condition := rapid.Custom(func(t *rapid.T) corev1.PodCondition {
		return corev1.PodCondition{
			Type:   rapid.SampledFrom([]corev1.PodConditionType{"Ready", "PodScheduled", "PodReadyToStartContainers", "Initialized", "Other"}).Draw(t, "type"),
			Status: rapid.SampledFrom([]corev1.ConditionStatus{"True", "False", "Unknown"}).Draw(t, "status"),
			Reason: rapid.SampledFrom([]string{"", "Unschedulable", "SchedulingGated"}).Draw(t, "reason"), Message: genText(t), LastTransitionTime: genTime(t),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		pod := newPod()
		pod.Name, pod.Spec.NodeName, pod.CreationTimestamp = genName(t), genName(t), genTime(t)
		if rapid.Bool().Draw(t, "has gates") {
			pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "Initialized"}, {ConditionType: "Other"}}
		}
		pod.Status.Reason, pod.Status.Message = rapid.SampledFrom([]string{"Evicted", ""}).Draw(t, "reason"), genText(t)
		pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"", "Pending", "Running", "Succeeded", "Failed", "Unknown"}).Draw(t, "phase")
		pod.Status.InitContainerStatuses = rapid.SliceOfN(container, 0, 2).Draw(t, "init containers")
		pod.Status.ContainerStatuses = rapid.SliceOfN(container, 0, 2).Draw(t, "containers")
		pod.Status.Conditions = rapid.SliceOfNDistinct(condition, 0, 5, func(c corev1.PodCondition) corev1.PodConditionType { return c.Type }).Draw(t, "conditions")
		if rapid.IntRange(0, 9).Draw(t, "is deleted") == 0 {
			beingDeleted(pod)
		}
		if rapid.IntRange(0, 9).Draw(t, "is released") == 0 {
			pod.OwnerReferences = nil
		}
		want, wantCounts := PodOf(pod)
		kept, _ := StripPod(pod.DeepCopy())
		got, counts := PodOf(kept.(*corev1.Pod))
		if diff := cmp.Diff(want, got); diff != "" || counts != wantCounts {
			t.Fatalf("from the cache, it counts: %t; (-want +got):\n%s", counts, diff)
		}
		if is := kept.(*corev1.Pod); is.Namespace != pod.Namespace || is.ResourceVersion != pod.ResourceVersion || is.Labels[LabelIcecream] != pod.Labels[LabelIcecream] {
			t.Fatalf("the cache itself lacks something: %+v", is.ObjectMeta)
		}
	})
}
