package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/examples/database/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
)

func orders() *v1alpha1.Database {
	return &v1alpha1.Database{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "ours", Generation: 1},
		Spec:       v1alpha1.DatabaseSpec{Version: 9, Image: "registry.example/database", Replicas: ptr.To[int32](2)},
	}
}

// rolledOut is the StatefulSet of orders once all is well, as edited.
func rolledOut(edits ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	fake := fake.NewClientset()
	plan, err := Decide(Observed{Database: orders()})
	if err != nil {
		panic(err)
	}
	set, err := fake.AppsV1().StatefulSets("shop").Patch(context.Background(), "orders", plan.Request.Type, plan.Request.Body, plan.Request.Options(fieldManager))
	if err != nil {
		panic(err)
	}
	set.UID = "set"
	set.Status = appsv1.StatefulSetStatus{Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}
	for _, edit := range edits {
		edit(set)
	}
	return set
}

func TestDecideAndStatus(t *testing.T) {
	gone := metav1.Now()
	const apply, scale = string(types.ApplyPatchType), string(types.MergePatchType)
	for name, test := range map[string]struct {
		live        *appsv1.StatefulSet
		undecodable string
		refusal     error
		sent        string // the type of the request
		reason      string // of the condition Ready
	}{
		"there is none":          {sent: apply, reason: kstatus.Progressing},
		"there is none, refused": {sent: apply, refusal: errors.New("no"), reason: v1alpha1.ReasonRefused},
		"there is none, invalid": {
			sent: apply, reason: v1alpha1.ReasonInvalidSpec,
			refusal: apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, "orders", field.ErrorList{field.Required(field.NewPath("spec"), "")}),
		},
		"all is well": {live: rolledOut(), reason: v1alpha1.ReasonAvailable},
		"an older version": {
			live: rolledOut(func(s *appsv1.StatefulSet) { s.Annotations[patch.AnnotationAsked] = "another/2" }),
			sent: apply, reason: v1alpha1.ReasonAvailable, // until the caches show the write
		},
		"somebody has changed a field": {
			live: rolledOut(func(s *appsv1.StatefulSet) { s.ManagedFields = nil }),
			sent: apply, reason: v1alpha1.ReasonAvailable,
		},
		"somebody has scaled it": {
			live: rolledOut(func(s *appsv1.StatefulSet) {
				s.Spec.Replicas, s.Status.Replicas = ptr.To[int32](3), 3
				owned := strings.Replace(s.ManagedFields[0].FieldsV1.GetRawString(), `"f:replicas":{},`, "", 1)
				s.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(owned)
			}),
			sent: scale, reason: kstatus.Progressing,
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
			if got := string(ptr.Deref(plan.Request, patch.Request{}).Type); got != test.sent {
				t.Errorf("sent %q, want %q", got, test.sent)
			}
			o.Refusal = test.refusal
			status := Status(o, plan)
			if got := meta.FindStatusCondition(status.Conditions, string(kstatus.Ready)); got.Reason != test.reason {
				t.Errorf("the reason is %s, want %s", got.Reason, test.reason)
			}
			if status.ObservedGeneration != 1 {
				t.Errorf("the status is about generation %d", status.ObservedGeneration)
			}
		})
	}
}

// The cache keeps nothing of what somebody else writes into the StatefulSet.
func TestStrip(t *testing.T) {
	s := rolledOut(func(s *appsv1.StatefulSet) {
		s.Spec.Template.Spec.Containers[0].Command = []string{"theirs"}
		s.ManagedFields = append(s.ManagedFields, metav1.ManagedFieldsEntry{Manager: "theirs"})
	})
	if _, err := strip(s); err != nil || s.Spec.Template.Spec.Containers != nil || len(s.ManagedFields) != 1 {
		t.Errorf("kept %+v, %v", s, err)
	}
}
