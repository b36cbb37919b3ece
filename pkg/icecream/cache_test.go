package icecream

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	clientsetscheme "nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/scheme"
	"nicoleh.io/k8s-controller/pkg/kit/lenient"
)

// What a cache keeps of an Icecream includes why its spec could not be decoded.
func TestStripIcecreamKeepsTheDecodingProblem(t *testing.T) {
	info, _ := runtime.SerializerInfoForMediaType(lenient.Codecs(clientsetscheme.Codecs.WithoutConversion()).SupportedMediaTypes(), runtime.ContentTypeJSON)
	obj, err := runtime.Decode(info.Serializer, []byte(`{
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

// Deployments are kept whole if they are an Icecream's or could be adopted.
func TestStripDeployment(t *testing.T) {
	for name, test := range map[string]struct {
		edit    func(*appsv1.Deployment)
		isWhole bool
	}{
		"an Icecream's":                 {func(*appsv1.Deployment) {}, true},
		"an Icecream's without a label": {func(d *appsv1.Deployment) { d.Labels = nil }, true},
		"an orphan":                     {orphaned, true},
		"somebody's":                    {func(d *appsv1.Deployment) { d.OwnerReferences[0].Kind, d.Labels = "Parlor", nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := made(t, newIcecream(), test.edit)
			want := d.DeepCopy()
			if !test.isWhole {
				want.Labels, want.Annotations, want.Spec, want.Status = nil, nil, appsv1.DeploymentSpec{}, appsv1.DeploymentStatus{}
			}
			d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
			kept, err := StripDeployment(d)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, kept); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
		})
	}
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
		"one that was evicted":                 {func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }, false},
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
				return corev1.ContainerStateTerminated{ExitCode: rapid.Int32Range(0, 1).Draw(t, "exit code"), Reason: genText(t)}
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
			Type:   rapid.SampledFrom([]corev1.PodConditionType{"Ready", "PodScheduled", "Initialized", "Other"}).Draw(t, "type"),
			Status: rapid.SampledFrom([]corev1.ConditionStatus{"True", "False", "Unknown"}).Draw(t, "status"),
			Reason: rapid.SampledFrom([]string{"", "Unschedulable"}).Draw(t, "reason"), Message: genText(t), LastTransitionTime: genTime(t),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		pod := newPod()
		pod.Name, pod.Spec.NodeName, pod.CreationTimestamp = genName(t), genName(t), genTime(t)
		pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"", "Pending", "Running", "Succeeded", "Failed", "Unknown"}).Draw(t, "phase")
		pod.Status.InitContainerStatuses = rapid.SliceOfN(container, 0, 2).Draw(t, "init containers")
		pod.Status.ContainerStatuses = rapid.SliceOfN(container, 0, 2).Draw(t, "containers")
		pod.Status.Conditions = rapid.SliceOfNDistinct(condition, 0, 3, func(c corev1.PodCondition) corev1.PodConditionType { return c.Type }).Draw(t, "conditions")
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
