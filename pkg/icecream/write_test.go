package icecream

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/ledger"
)

func terminating() error {
	err := forbidden("the namespace is being terminated").(*apierrors.StatusError) //nolint:errorlint // it is not wrapped
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// What is refused is said once, for as long as it is refused. An edit ends it.
func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		status string
		events []string
	}{
		"by a quota": {
			forbidden("exceeded quota"),
			"Reconciling: DeploymentRefused: " + forbidden("exceeded quota").Error(),
			[]string{"Warning DeploymentRefused: " + forbidden("exceeded quota").Error()},
		},
		"as invalid": {
			invalid(),
			"Stalled: InvalidSpec: " + invalid().Error(),
			[]string{"Warning InvalidSpec: " + invalid().Error()},
		},
		"in a namespace that is being deleted": {
			terminating(),
			"Reconciling: DeploymentTerminating: The namespace is being deleted",
			nil, // That is no reason for a warning.
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newIcecream())
			var events []string
			for i := range 8 {
				s := w.sync(test.err)
				early := w.sync(nil)
				if len(s.due) != 2 || len(early.due) > 0 || s.report.RequeueAfter != early.report.RequeueAfter || s.report.RequeueAfter == 0 {
					t.Errorf("attempt %d: %s, again after %s; and then %s, %s", i+1, s.words, s.report.RequeueAfter, early.words, early.report.RequeueAfter)
				}
				for _, status := range []Report{s.report, early.report} {
					if got := verdictOf(status.Status) + ": " + messageOf(status.Status); got != test.status {
						t.Errorf("status: %s", got)
					}
				}
				events = append(append(events, s.events...), early.events...)
				w.now = w.now.Add(s.report.RequeueAfter)
			}
			if diff := cmp.Diff(test.events, events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			w.sync(test.err)
			w.ice = newIcecream(scaledTo(5))
			if s := w.sync(nil); len(s.due) != 2 || w.deployment("sundae") == nil {
				t.Errorf("after an edit: %s", s.words)
			}
		})
	}
}

// A patch of both parts that is refused counts for the shape alone, and the replicas are written
// without it.
func TestARefusedShapeLetsTheReplicasPass(t *testing.T) {
	w := newWorld(t, newIcecream())
	w.sync(nil)
	w.rollOut()
	w.ice = newIcecream(scaledTo(5), func(ice *v1alpha1.Icecream) { ice.Spec.Image = "registry.example/mint:1" })
	o, _ := asking(w.observe())
	if len(o.Standing.Due) != 2 || driftOf(o, o.Standing.Due[1:]) != replicasField || strings.Contains(driftOf(o, o.Standing.Due[:1]), replicasField) {
		t.Errorf("%d parts are due; the first changes %s, the others %s", len(o.Standing.Due), driftOf(o, o.Standing.Due[:1]), driftOf(o, o.Standing.Due[1:]))
	}
	w.sync(forbidden("no mint"))
	if s := w.sync(nil); len(s.due) > 0 {
		t.Errorf("both are refused: %s", s.words)
	}
	w.ice = newIcecream(scaledTo(6), func(ice *v1alpha1.Icecream) { ice.Spec.Image = "registry.example/mint:1" })
	s := w.sync(nil)
	d := w.deployment("sundae")
	if *d.Spec.Replicas != 6 || containerOf(&d.Spec.Template).Image != "registry.example/vanilla:1" {
		t.Errorf("%d replicas of %s", *d.Spec.Replicas, containerOf(&d.Spec.Template).Image)
	}
	if got := verdictOf(s.report.Status); got != "Reconciling: DeploymentRefused" {
		t.Errorf("status: %s", got)
	}
}

// Somebody who undoes every write gets slower and slower answers. What is said about it ends when
// a repair has lasted.
func TestFight(t *testing.T) {
	const undone = `Deployment "sundae" keeps being deleted; retrying with back-off`
	w := newWorld(t, newIcecream())
	w.sync(nil)
	for range 5 {
		w.delete("sundae")
		w.rollOut()
		s := w.sync(nil)
		if len(s.due) > 0 {
			continue
		}
		if got := verdictOf(w.ice.Status) + ": " + messageOf(w.ice.Status); got != "Reconciling: DeploymentContested: "+undone {
			t.Errorf("status: %s", got)
		}
		w.now = w.now.Add(s.report.RequeueAfter)
		if again := w.sync(nil); len(again.due) == 0 {
			t.Errorf("when it is time: %s", again.words)
		}
	}
	w.rollOut()
	s := w.sync(nil)
	if got := verdictOf(w.ice.Status); got != "Reconciling: DeploymentContested" {
		t.Errorf("before it has lasted: %s", got)
	}
	w.now = w.now.Add(s.report.RequeueAfter)
	w.sync(nil)
	if got := verdictOf(w.ice.Status); got != "Ready: Available" {
		t.Errorf("when it has lasted: %s", got)
	}
}

// What an admission policy or a webhook makes of a request is accepted, since to repeat the
// request would change nothing. It is recorded once. Somebody else's change is still repaired.
func TestPolicies(t *testing.T) {
	const says = "; an admission policy or webhook changed: "
	mirror := "mirror.example/" + strings.Repeat("very/", 40)
	for name, test := range map[string]struct {
		policy, edit func(*appsv1.Deployment)
		altered      string
		asksForIt    bool // the Icecream, in the end
	}{
		"fewer replicas": {
			policy:  func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](2) },
			edit:    scaled,
			altered: "spec.replicas is 2 instead of 3", asksForIt: true,
		},
		"another registry": {
			policy:  func(d *appsv1.Deployment) { containerOf(&d.Spec.Template).Image = mirror + "vanilla:1" },
			edit:    func(d *appsv1.Deployment) { containerOf(&d.Spec.Template).Image = mirror + "mud:1" },
			altered: `spec.template.spec.containers[icecream].image is "` + mirror[:119] + ` instead of "registry.example/vanilla:1"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newIcecream())
			w.policy = test.policy
			expect := func(what string, isWrite bool, events ...string) {
				t.Helper()
				s := w.sync(nil)
				if len(s.due) > 0 != isWrite {
					t.Errorf("%s: %s", what, s.words)
				}
				if diff := cmp.Diff(events, s.events, equateEmpty); diff != "" {
					t.Errorf("%s: events (-want +got):\n%s", what, diff)
				}
			}
			expect("created", true, `Normal DeploymentAltered: Created Deployment "sundae"`+says+test.altered)
			expect("after that", false)
			w.memory, w.ledger = Memory{}, ledger.New()
			expect("with a lost memory", true) // repeated, without a change
			expect("after that", false)
			w.edit("somebody", "sundae", test.edit)
			expect("with another change", true, `Normal DeploymentAltered: Updated Deployment "sundae"`+says+test.altered)
			expect("after that", false)
			if test.asksForIt {
				w.ice = newIcecream(scaledTo(2))
				expect("when it is what the spec asks for", false)
			}
		})
	}
}

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
