package icecream

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

func TestLastWriter(t *testing.T) {
	entry := func(manager, subresource string, age time.Duration) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Time: ptr.To(metav1.NewTime(now.Add(-age)))}
	}
	for want, entries := range map[string][]metav1.ManagedFieldsEntry{
		"":                      {entry(FieldManager, "", 0), entry("kube-controller-manager", "status", 0)},
		`field manager "helm"`:  {entry("kubectl", "", 2), entry("helm", "", 1), entry(FieldManager, "", 0), entry("kube-controller-manager", "status", 0)},
		`field manager "argo"`:  {{Manager: "old"}, entry("argo", "", 1)},
		`field manager "first"`: {{Manager: "first"}},
	} {
		if got := LastWriter(&metav1.ObjectMeta{ManagedFields: entries}); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// write writes what is due and returns what is known then.
func (w *world) write(o Observed) (after Observed, event Event) {
	w.tb.Helper()
	due := o.Standing.Due
	after, outcomes, event := o.With(due, w.carryOut(o, due))
	for i, ask := range due {
		w.account().Note(w.now, ask, outcomes[i])
	}
	after.Standing = w.account().Standing(w.now, after.Asks())
	return after, event
}

// What somebody else has changed just before a write arrives was not altered by a policy, and
// is repaired.
func TestAWriteThatCrossesAnother(t *testing.T) {
	for name, edit := range map[string]func(*appsv1.Deployment){
		"of the other part": func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](9) },
		"of the same part":  func(d *appsv1.Deployment) { delete(d.Labels, LabelIcecream) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newIcecream())
			w.sync(nil)
			w.rollOut()
			w.ice.Spec.Image = "registry.example/mint:1"
			o := w.observe()
			o.Standing = w.account().Standing(w.now, Decide(o).Asks)
			w.edit("somebody", "sundae", edit)
			_, event := w.write(o)
			if event.Reason != v1alpha1.ReasonDeploymentUpdated {
				t.Errorf("event: %s", inWords(event))
			}
			w.sync(nil)
			if d := w.deployment("sundae"); *d.Spec.Replicas != 3 || d.Labels[LabelIcecream] == "" {
				t.Errorf("it has %d replicas and the labels %v", *d.Spec.Replicas, d.Labels)
			}
		})
	}
}

// Somebody takes back the replicas just before the controller restores a label. What is stored
// is rolled out, but not what the Icecream asks for.
func TestACrossedWriteIsNotReady(t *testing.T) {
	w := newWorld(t, newIcecream())
	w.sync(nil)
	w.rollOut()
	w.edit("somebody", "sundae", func(d *appsv1.Deployment) { delete(d.Labels, LabelIcecream) })
	o := w.observe()
	plan := Decide(o)
	o.Standing = w.account().Standing(w.now, plan.Asks)
	w.edit("somebody", "sundae", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](1) })
	w.rollOut()
	o.Pods = []Pod{{Name: "sundae-1", ReplicaSet: "sundae-7c8b", TemplateHash: "7c8b", Node: "node-1", Ready: true}} // Their cache is ahead.
	after, _ := w.write(o)
	report := Status(after, plan)
	if ready := meta.FindStatusCondition(report.Status.Conditions, v1alpha1.ConditionReady); ready.Status == metav1.ConditionTrue {
		t.Errorf("it is Ready: %s", ready.Message)
	}
	w.sync(nil)
	if replicas := *w.deployment("sundae").Spec.Replicas; replicas != 3 {
		t.Errorf("it has %d replicas", replicas)
	}
}
