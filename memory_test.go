package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

// How many bytes the caches need for each object, with its key and its indexes. The names of
// the group and the kind are in a dozen places of an object.
func TestMemoryPerObject(t *testing.T) {
	longer := int64(max(0, len(v1alpha1.GroupName)+len("Icecream")-29))
	ice, deployment := atRest(t)
	for name, test := range map[string]struct {
		sample    any
		transform cache.TransformFunc
		into      func() any
		index     cache.IndexFunc
		atMost    int64
	}{
		"Icecream": {
			sample: ice, transform: informer.Stripped(icecream.CompactIcecream), into: func() any { return &v1alpha1.Icecream{} },
			index: func(obj any) ([]string, error) { return labelKeys(obj.(*v1alpha1.Icecream)) }, atMost: 1_300,
		},
		"Deployment": {
			sample: deployment, transform: kindOf(kubefake.NewClientset().AppsV1().Deployments, icecream.DeploymentName).pack, into: func() any { return &appsv1.Deployment{} },
			index: func(obj any) ([]string, error) { return ownerKeys(obj.(*informer.Packed)) }, atMost: 600,
		},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(test.sample)
			if err != nil {
				t.Fatal(err)
			}
			const objects = 5_000
			all := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{"": test.index})
			before := kittest.Heap()
			for i := range objects {
				obj := test.into()
				if err := json.Unmarshal([]byte(strings.ReplaceAll(string(raw), "00000", fmt.Sprintf("%05d", i))), obj); err != nil {
					t.Fatal(err)
				}
				kept, err := test.transform(obj)
				if err != nil {
					t.Fatal(err)
				}
				if err := all.Add(kept); err != nil {
					t.Fatal(err)
				}
			}
			if each, atMost := (kittest.Heap()-before)/objects, test.atMost+12*longer; each > atMost {
				t.Errorf("each takes %d bytes, want at most %d", each, atMost)
			} else {
				t.Logf("%d bytes each", each)
			}
			runtime.KeepAlive(all)
		})
	}
}

// atRest returns an Icecream and its Deployment, as they are when both are complete, with
// 00000 for what tells them from others.
func atRest(t *testing.T) (*v1alpha1.Icecream, *appsv1.Deployment) {
	t.Helper()
	now := metav1.Now()
	condition := func(name string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: name, Status: status, Reason: "Available", Message: "3 of 3 Pods available", LastTransitionTime: now, ObservedGeneration: 1}
	}
	ice := newIcecream(func(ice *v1alpha1.Icecream) {
		ice.Name, ice.UID, ice.ResourceVersion, ice.CreationTimestamp = "sundae-00000", "7c9e6679-7425-40de-944b-e07fc1f00000", "1234500000", now
		ice.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: strings.Repeat("melted ", 100)}
		ice.Spec.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")}
		ice.Spec.Resources.Requests = ice.Spec.Resources.Limits
	})
	d := icecream.Decide(icecream.Assess(icecream.Observed{Icecream: ice}))
	deployment := d.Children[0].Want.(*appsv1.Deployment)
	deployment.UID, deployment.ResourceVersion, deployment.CreationTimestamp = "a8098c1a-f86e-11da-bd1a-001124400000", "1234600000", now
	deployment.Status = appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3, ObservedGeneration: 1, Conditions: []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable", Message: "Deployment has minimum availability.", LastUpdateTime: now, LastTransitionTime: now},
		{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable", Message: `ReplicaSet "sundae-00000-59b6900000" has successfully progressed.`, LastUpdateTime: now, LastTransitionTime: now},
	}}
	fields := strings.Repeat(`"f:labels":{"f:app":{}},`, 40)
	for _, entry := range []metav1.ManagedFieldsEntry{
		{Manager: icecream.FieldManager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{` + fields + `"f:ownerReferences":{"k:{\"uid\":\"` + string(ice.UID) + `\"}":{}}}}`)},
		{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{` + fields + `"f:status":{}}`)},
	} {
		entry.APIVersion, entry.FieldsType, entry.Time = "apps/v1", "FieldsV1", &now
		deployment.ManagedFields = append(deployment.ManagedFields, entry)
	}
	ice.ManagedFields = deployment.ManagedFields
	ice.Status = v1alpha1.IcecreamStatus{
		ObservedGeneration: 1, DeploymentName: ice.Name, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3,
		Selector: metav1.FormatLabelSelector(deployment.Spec.Selector), NodeCount: 3, Placement: "node-1 (1), node-2 (1), node-3 (1)",
		Nodes:      []v1alpha1.IcecreamNode{{Name: "node-1", Pods: 1, ReadyPods: 1}, {Name: "node-2", Pods: 1, ReadyPods: 1}, {Name: "node-3", Pods: 1, ReadyPods: 1}},
		Conditions: []metav1.Condition{condition("Ready", "True"), condition("Reconciling", "False"), condition("Stalled", "False")},
	}
	return ice, deployment
}
