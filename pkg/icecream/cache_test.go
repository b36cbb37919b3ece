package icecream

import (
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	clientsetscheme "nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/scheme"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/lenient"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
)

// What a cache keeps of an Icecream includes why its spec could not be decoded.
func TestStripIcecreamKeepsTheDecodingProblem(t *testing.T) {
	codecs := lenient.Codecs(clientsetscheme.Codecs.WithoutConversion())
	info, _ := apiruntime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), apiruntime.ContentTypeJSON)
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
	const want = "spec: json: cannot unmarshal number into Go struct field IcecreamSpec.spec.image of type string"
	if got := lenient.DecodeError(ice, "spec"); got != want {
		t.Errorf("the problem is %q, want %q", got, want)
	}
	if _, isApplied := ice.Annotations[corev1.LastAppliedConfigAnnotation]; isApplied || ice.ManagedFields != nil || ice.Status.Replicas != 3 {
		t.Errorf("kept %+v", ice)
	}
}

// A cache keeps which fields of a Deployment are ours if it is an Icecream's or could be adopted.
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
				d.Annotations["example.com/note"] = "melted"
			}))
			if isKept := len(kept.ManagedFields) > 0; isKept != test.isKept || kept.Spec.Template.Spec.Containers != nil {
				t.Errorf("kept %+v", kept)
			}
			if kept.Annotations["example.com/note"] != "" {
				t.Errorf("kept %+v", kept.Annotations)
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
	d := stored(t, newIcecream())
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
		d := stored(t, newIcecream())
		d.Spec.Template.Spec.Containers[0].Command = make([]string, 100_000)
		all = append(all, kept, stripped(d))
	}
	if each := (heap() - before) / 40; each > atMost {
		t.Errorf("of Pods with a long message and Deployments with a long command, each takes %d bytes of the heap", each)
	}
	runtime.KeepAlive(all)
}
