package main

import (
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/examples/database/apis/database/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
)

var (
	now     = time.Date(2026, time.July, 1, 12, 0, 0, 0, time.UTC)
	refused = apierrors.NewForbidden(statefulSetResource, "orders", errors.New("exceeded quota"))
	invalid = apierrors.NewInvalid(appsv1.SchemeGroupVersion.WithKind("StatefulSet").GroupKind(), "orders",
		field.ErrorList{field.Required(field.NewPath("spec"), "")})
)

func orders() *v1alpha1.Database {
	return &v1alpha1.Database{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "ours", Generation: 1},
		Spec:       v1alpha1.DatabaseSpec{Version: 9, Image: "registry.example/database", Replicas: ptr.To[int32](2)},
	}
}

// rolledOut is the StatefulSet of orders when all is well, as edited.
func rolledOut(edits ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "orders", UID: "set", Generation: 1, Labels: map[string]string{labelVersion: "9"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "Database", Name: "orders", UID: "ours", Controller: ptr.To(true)}},
		},
		Spec:   appsv1.StatefulSetSpec{Replicas: ptr.To[int32](2)},
		Status: appsv1.StatefulSetStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2},
	}
	for _, edit := range edits {
		edit(set)
	}
	return set
}

func TestDecide(t *testing.T) {
	ofOrders := Decide(Observed{Database: orders()}).Wish
	for name, test := range map[string]struct {
		of     Observed
		isSent bool
		wait   time.Duration
		held   string // the reason
	}{
		"there is none":               {isSent: true},
		"it was refused a moment ago": {of: Observed{Last: pace.Attempt{}.Then(ofOrders, refused, now)}, isSent: true, wait: time.Second},
		"another edit was refused":    {of: Observed{Last: pace.Attempt{}.Then(pace.Wish{}, refused, now)}, isSent: true},
		"it has none of our fields":   {of: Observed{Live: rolledOut()}, isSent: true},
		"the spec cannot be decoded":  {of: Observed{Undecodable: "no"}, held: v1alpha1.ReasonInvalidSpec},
		"it belongs to somebody else": {of: Observed{Live: rolledOut(func(s *appsv1.StatefulSet) { s.OwnerReferences = nil })}, held: v1alpha1.ReasonErrResourceExists},
		"it is being deleted":         {of: Observed{Live: rolledOut(func(s *appsv1.StatefulSet) { s.DeletionTimestamp = &metav1.Time{} })}, held: v1alpha1.ReasonTerminating},
		"it runs a later version":     {of: Observed{Live: rolledOut(func(s *appsv1.StatefulSet) { s.Labels[labelVersion] = "10" })}, held: v1alpha1.ReasonInvalidSpec},
	} {
		t.Run(name, func(t *testing.T) {
			test.of.Now, test.of.Database = now, orders()
			plan := Decide(test.of)
			if isSent := plan.Request != nil; isSent != test.isSent || plan.Wait != test.wait || plan.Held.Reason != test.held {
				t.Errorf("sent: %t after %s, held for %q; want %t, %s, %q", isSent, plan.Wait, plan.Held.Reason, test.isSent, test.wait, test.held)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	open := Plan{Request: &patch.Request{}}
	for name, test := range map[string]struct {
		of     Observed
		plan   Plan
		state  kstatus.State
		reason string
	}{
		"all is well":              {of: Observed{Live: rolledOut()}, state: kstatus.Ready, reason: v1alpha1.ReasonAvailable},
		"it was just changed":      {of: Observed{Live: rolledOut()}, plan: open, state: kstatus.Ready, reason: v1alpha1.ReasonAvailable},
		"a change is not seen yet": {of: Observed{Live: rolledOut(func(s *appsv1.StatefulSet) { s.Generation = 2 })}, state: kstatus.Reconciling, reason: kstatus.Progressing},
		"a Pod is not available":   {of: Observed{Live: rolledOut(func(s *appsv1.StatefulSet) { s.Status.AvailableReplicas = 1 })}, state: kstatus.Reconciling, reason: kstatus.Progressing},
		"a Pod too many":           {of: Observed{Live: rolledOut(func(s *appsv1.StatefulSet) { s.Status.Replicas = 3 })}, state: kstatus.Reconciling, reason: kstatus.Progressing},
		"a quota refuses it":       {of: Observed{Last: pace.Attempt{Failure: refused}}, plan: open, state: kstatus.Reconciling, reason: v1alpha1.ReasonRefused},
		"validation refuses it":    {of: Observed{Last: pace.Attempt{Failure: invalid}}, plan: open, state: kstatus.Stalled, reason: v1alpha1.ReasonInvalidSpec},
		"a refusal is past":        {of: Observed{Live: rolledOut(), Last: pace.Attempt{Failure: refused}}, state: kstatus.Ready, reason: v1alpha1.ReasonAvailable},
	} {
		t.Run(name, func(t *testing.T) {
			test.of.Now, test.of.Database = now, orders()
			status := Status(test.of, test.plan)
			for _, c := range status.Conditions {
				if isTrue := c.Status == metav1.ConditionTrue; isTrue != (c.Type == string(test.state)) || c.Reason != test.reason {
					t.Errorf("%s is %s for %s, want %s for %s", c.Type, c.Status, c.Reason, test.state, test.reason)
				}
			}
			if status.ObservedGeneration != 1 || len(status.Conditions) != len(kstatus.States()) {
				t.Errorf("the status is %+v", status)
			}
		})
	}
}

func TestEventOf(t *testing.T) {
	status := func(state kstatus.State, reason string) (s v1alpha1.DatabaseStatus) {
		kstatus.Conclusion{State: state, Reason: reason, Message: "because"}.SetOn(&s.Conditions, 1, now)
		return s
	}
	available, waiting := status(kstatus.Ready, v1alpha1.ReasonAvailable), status(kstatus.Reconciling, kstatus.Progressing)
	refused := status(kstatus.Reconciling, v1alpha1.ReasonRefused)
	for name, test := range map[string]struct {
		was, is v1alpha1.DatabaseStatus
		want    string
	}{
		"a new one waits":     {is: waiting},
		"it is available":     {was: waiting, is: available, want: corev1.EventTypeNormal},
		"it waits again":      {was: available, is: waiting},
		"it is refused":       {was: available, is: refused, want: corev1.EventTypeWarning},
		"it is refused again": {was: refused, is: refused},
	} {
		if eventType, _, message := EventOf(test.was, test.is); eventType != test.want || (message == "because") != (test.want != "") {
			t.Errorf("%s: the event is %q: %q, want %q", name, eventType, message, test.want)
		}
	}
}

// The cache keeps nothing of what somebody else writes into the StatefulSet.
func TestStrip(t *testing.T) {
	s := rolledOut(func(s *appsv1.StatefulSet) {
		s.Spec.Template.Spec.Containers = []corev1.Container{{Name: "theirs"}}
		s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: fieldManager}, {Manager: "theirs"}}
	})
	if _, err := strip(s); err != nil || s.Spec.Template.Spec.Containers != nil || len(s.ManagedFields) != 1 {
		t.Errorf("kept %+v, %v", s, err)
	}
}
