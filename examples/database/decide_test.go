package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/examples/database/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
)

func orders() *v1alpha1.Database {
	return &v1alpha1.Database{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "ours", Generation: 1},
		Spec:       v1alpha1.DatabaseSpec{Version: 9, Image: "registry.example/database", Replicas: ptr.To[int32](2)},
	}
}

// rolledOut is the StatefulSet of orders once all is well, as edited.
func rolledOut(edits ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	set := newStatefulSet(orders())
	set.UID = "set"
	set.Status = appsv1.StatefulSetStatus{Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}
	for _, edit := range edits {
		edit(set)
	}
	return set
}

func TestDecideAndStatus(t *testing.T) {
	gone := metav1.Now()
	for name, test := range map[string]struct {
		live        *appsv1.StatefulSet
		undecodable string
		refusal     error
		patch       string // what is sent; "new" is a new StatefulSet
		reason      string // of the condition Ready
	}{
		"there is none":          {patch: "new", reason: kstatus.Progressing},
		"there is none, refused": {patch: "new", refusal: errors.New("no"), reason: v1alpha1.ReasonRefused},
		"there is none, invalid": {
			patch: "new", reason: v1alpha1.ReasonInvalidSpec,
			refusal: apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, "orders", field.ErrorList{field.Required(field.NewPath("spec"), "")}),
		},
		"all is well": {live: rolledOut(), reason: v1alpha1.ReasonAvailable},
		"an older version": {
			live: rolledOut(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "registry.example/database:8" }),
			patch: `{"metadata":{"uid":"set"},"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"database"}],` +
				`"containers":[{"image":"registry.example/database:9","name":"database"}]}}}}`,
			reason: v1alpha1.ReasonAvailable, // until the caches show the write
		},
		"other nodes than Linux's": {
			live: rolledOut(func(s *appsv1.StatefulSet) {
				s.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "windows", "disk": "ssd"}
			}),
			patch:  `{"metadata":{"uid":"set"},"spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/os":"linux"}}}}}`,
			reason: v1alpha1.ReasonAvailable, // until the caches show the write
		},
		"a sidecar of somebody else": {
			live: rolledOut(func(s *appsv1.StatefulSet) {
				s.Spec.Template.Spec.Containers = append(s.Spec.Template.Spec.Containers, corev1.Container{Name: "proxy"})
			}),
			reason: v1alpha1.ReasonAvailable,
		},
		"somebody else's StatefulSet": {
			live:   rolledOut(func(s *appsv1.StatefulSet) { s.OwnerReferences = nil }),
			reason: v1alpha1.ReasonErrResourceExists,
		},
		"it is being deleted": {
			live:   rolledOut(func(s *appsv1.StatefulSet) { s.DeletionTimestamp = &gone }),
			reason: v1alpha1.ReasonTerminating,
		},
		"a Pod that is not available": {
			live:   rolledOut(func(s *appsv1.StatefulSet) { s.Status.AvailableReplicas = 1 }),
			reason: kstatus.Progressing,
		},
		"a spec that is not one": {undecodable: "no", reason: v1alpha1.ReasonInvalidSpec},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{Now: time.Unix(1e9, 0), Database: orders(), Live: test.live, Undecodable: test.undecodable}
			plan, err := Decide(o)
			if err != nil {
				t.Fatal(err)
			}
			got := string(plan.Patch)
			if plan.Want != nil && plan.Live == nil {
				got = "new"
			}
			if got != test.patch {
				t.Errorf("sent %s, want %s", got, test.patch)
			}
			o.Refusal = test.refusal
			status := Status(o, plan)
			if got := kstatus.ReadinessOf(status.Conditions); got.Reason != test.reason {
				t.Errorf("the reason is %s, want %s", got.Reason, test.reason)
			}
			if status.ObservedGeneration != 1 {
				t.Errorf("the status is about generation %d", status.ObservedGeneration)
			}
		})
	}
}

// Whatever somebody writes into the StatefulSet, a patch takes no time and leaves it.
func TestNumbersOfOthers(t *testing.T) {
	live := rolledOut(func(s *appsv1.StatefulSet) {
		pod := &s.Spec.Template.Spec
		pod.Containers[0].Image = "registry.example/database:8"
		pod.Containers[0].Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("1" + strings.Repeat("0", 200_000))}
		pod.Containers = append([]corev1.Container{{Name: "proxy", Resources: pod.Containers[0].Resources}}, pod.Containers...)
	})
	if _, err := strip(live); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	plan, err := Decide(Observed{Now: start, Database: orders(), Live: live})
	if err != nil || strings.Contains(string(plan.Patch), "proxy") || strings.Contains(string(plan.Patch), "resources") {
		t.Errorf("sent %s, %v", plan.Patch, err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}
