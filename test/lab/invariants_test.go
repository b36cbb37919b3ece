package lab

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

func TestInvariants(t *testing.T) {
	for _, test := range []struct {
		name     string
		spoil    func(*v1alpha1.Icecream)
		wasReady bool
		want     string // must be part of the violations; if empty, there must be none
	}{
		{name: "Ready", spoil: func(*v1alpha1.Icecream) {}},
		{name: "no status yet", spoil: func(ice *v1alpha1.Icecream) { ice.Status = v1alpha1.IcecreamStatus{} }},
		{name: "the status describes an earlier spec", spoil: func(ice *v1alpha1.Icecream) { ice.Generation = 4 }},
		{name: "Reconciling", spoil: func(ice *v1alpha1.Icecream) { set(ice, "False", "True", "False") }},
		{name: "Stalled", spoil: func(ice *v1alpha1.Icecream) { set(ice, "False", "False", "True") }},
		{name: "being deleted", spoil: func(ice *v1alpha1.Icecream) { ice.DeletionTimestamp = ptr.To(metav1.Now()) }},
		{name: "Ready and Reconciling", spoil: func(ice *v1alpha1.Icecream) { set(ice, "True", "True", "False") }, want: "both Ready and Reconciling"},
		{name: "Reconciling and Stalled", spoil: func(ice *v1alpha1.Icecream) { set(ice, "False", "True", "True") }, want: "both Reconciling and Stalled"},
		{name: "no condition is True", spoil: func(ice *v1alpha1.Icecream) { set(ice, "False", "False", "False") }, want: "neither Ready"},
		{name: "there is no condition Ready", spoil: func(ice *v1alpha1.Icecream) { ice.Status.Conditions = ice.Status.Conditions[1:] }, want: "no condition Ready"},
		{name: "the status describes a later generation", spoil: func(ice *v1alpha1.Icecream) { ice.Status.ObservedGeneration = 4 }, want: "does not exist yet"},
		{name: "a condition describes an earlier generation", spoil: func(ice *v1alpha1.Icecream) { ice.Status.Conditions[0].ObservedGeneration = 2 }, want: "condition Ready describes generation 2"},
		{name: "a Pod is not available", spoil: func(ice *v1alpha1.Icecream) { ice.Status.AvailableReplicas = 1 }, want: "1 availableReplicas, want 2"},
		{name: "a Pod is missing from the nodes", spoil: func(ice *v1alpha1.Icecream) { ice.Status.Nodes[0].Pods = 1 }, want: "with 1 Pods on its nodes"},
		{name: "a Pod is deleted", wasReady: true, spoil: func(ice *v1alpha1.Icecream) { ice.Status.Nodes[0].Pods = 1 }},
		{name: "the nodes have an additional Pod", spoil: func(ice *v1alpha1.Icecream) {
			ice.Status.Nodes = append(ice.Status.Nodes, v1alpha1.IcecreamNode{Name: "b", Pods: 1})
			ice.Status.NodeCount = 2
		}, want: "with 3 Pods on its nodes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ice := current()
			test.spoil(ice)
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ice)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(violationsIn(&unstructured.Unstructured{Object: object}, ice, test.wasReady, false), "\n")
			if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("violations are %q, want %q", got, test.want)
			}
		})
	}
}

// current returns an Icecream that is Ready, with a status that violates nothing.
func current() *v1alpha1.Icecream {
	ice := &v1alpha1.Icecream{
		TypeMeta:   metav1.TypeMeta{APIVersion: "controller.nicoleh.io/v1alpha1", Kind: "Icecream"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "d", UID: types.UID("ice"), Generation: 3, CreationTimestamp: metav1.Unix(1, 0)},
		Spec:       v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](2), Image: "i"},
		Status: v1alpha1.IcecreamStatus{
			ObservedGeneration: 3, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2,
			Nodes: []v1alpha1.IcecreamNode{{Name: "a", Pods: 2, ReadyPods: 2}}, NodeCount: 1,
		},
	}
	set(ice, "True", "False", "False")
	return ice
}

// set sets the three conditions of an Icecream.
func set(ice *v1alpha1.Icecream, ready, reconciling, stalled metav1.ConditionStatus) {
	ice.Status.Conditions = nil
	for _, c := range []struct {
		name   string
		status metav1.ConditionStatus
	}{{"Ready", ready}, {"Reconciling", reconciling}, {"Stalled", stalled}} {
		ice.Status.Conditions = append(ice.Status.Conditions, metav1.Condition{
			Type: c.name, Status: c.status, Reason: "R", ObservedGeneration: 3, LastTransitionTime: metav1.NewTime(time.Unix(10, 0)),
		})
	}
}
