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
	"nicoleh.io/k8s-controller/pkg/kit/backoff"
)

func terminating() error {
	err := forbidden("the namespace is being terminated").(*apierrors.StatusError) //nolint:errorlint // it is not wrapped
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// What is refused is tried again later and later, and recorded once.
func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		waits  []int // in seconds
		status string
		events []string
	}{
		"by a quota": {
			forbidden("exceeded quota"),
			[]int{1, 2, 4, 8, 16, 32, 60, 60},
			"Reconciling: DeploymentRefused: " + forbidden("exceeded quota").Error(),
			[]string{"Warning DeploymentRefused: " + forbidden("exceeded quota").Error()},
		},
		"as invalid": {
			invalid(),
			[]int{300, 300},
			"Stalled: InvalidSpec: " + invalid().Error(),
			[]string{"Warning InvalidSpec: " + invalid().Error()},
		},
		"in a namespace that is being deleted": {
			terminating(),
			[]int{1, 2, 4, 8, 16, 32, 60, 60},
			"Reconciling: DeploymentTerminating: The namespace is being deleted",
			nil, // That is no reason for a warning.
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newIcecream())
			var events []string
			for i, seconds := range test.waits {
				s := w.sync(test.err)
				if s.plan.IsRetry() != (i > 0) || !s.plan.IsWrite() {
					t.Errorf("attempt %d: %s", i+1, s.words)
				}
				wait := time.Duration(seconds) * time.Second
				w.now = w.now.Add(wait - time.Second/2)
				early := w.sync(nil)
				if early.plan.IsWrite() || s.report.RequeueAfter != wait || early.report.RequeueAfter != time.Second/2 {
					t.Errorf("after attempt %d: again after %s, and then %s: %s", i+1, s.report.RequeueAfter, early.report.RequeueAfter, early.words)
				}
				for _, status := range []Report{s.report, early.report} {
					if got := verdictOf(status.Status) + ": " + messageOf(status.Status); got != test.status {
						t.Errorf("status: %s", got)
					}
				}
				events = append(append(events, s.events...), early.events...)
				w.now = w.now.Add(time.Second / 2)
			}
			if diff := cmp.Diff(test.events, events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}

			// It is not worth a write while all wait for something else.
			if later := decide(t, w.observe()).Postponed(time.Hour); later.IsWrite() || later.Held.Reason == "" || later.RequeueAfter != time.Hour {
				t.Errorf("postponed: %+v", later)
			}
			// Another request waits for nothing.
			w.sync(test.err)
			w.ice = newIcecream(scaledTo(5))
			if s := w.sync(nil); !s.plan.IsWrite() || s.plan.IsRetry() || w.memory.Write.Count != 1 || w.memory.Write.isRefused() {
				t.Errorf("after an edit: %s, remembered %+v", s.words, w.memory.Write)
			}
		})
	}
}

// Somebody who undoes every write gets slower and slower answers, and a new chance after a
// pause.
func TestFight(t *testing.T) {
	const undone = `What the controller writes keeps being undone, last by a deletion of Deployment "sundae"; it waits longer each time before it repairs that`
	w := newWorld(t, newIcecream())
	w.sync(nil)
	var waits []time.Duration
	for range 11 {
		w.delete("sundae")
		w.rollOut()
		s := w.sync(nil)
		if waits = append(waits, s.report.RequeueAfter); s.plan.IsWrite() {
			continue
		}
		if got := verdictOf(w.ice.Status) + ": " + messageOf(w.ice.Status); got != "Reconciling: DeploymentContested: "+undone {
			t.Errorf("status: %s", got)
		}
		w.now = w.now.Add(s.report.RequeueAfter)
		if again := w.sync(nil); !again.plan.IsUndone || !again.plan.IsWrite() {
			t.Errorf("when it is time: %s", again.words)
		}
	}
	want := []time.Duration{deadline, deadline} // The first two wait for nothing but the rollout.
	for _, seconds := range []int{5, 10, 20, 40, 80, 160, 300, 300, 300} {
		want = append(want, time.Duration(seconds)*time.Second)
	}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	w.delete("sundae")
	w.rollOut()
	w.now = w.now.Add(backoff.ForgetAfter)
	if w.sync(nil); w.memory.Write.Count != 1 || w.memory.Write.isUndone(w.now) {
		t.Errorf("long after the last: %+v", w.memory.Write)
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
				if s.plan.IsWrite() != isWrite {
					t.Errorf("%s: %s", what, s.words)
				}
				if diff := cmp.Diff(events, s.events, equateEmpty); diff != "" {
					t.Errorf("%s: events (-want +got):\n%s", what, diff)
				}
			}
			expect("created", true, `Normal DeploymentAltered: Created Deployment "sundae"`+says+test.altered)
			expect("after that", false)
			w.memory = Memory{}
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
		"":        {entry(FieldManager, "", 0), entry("kube-controller-manager", "status", 0)},
		`"helm"`:  {entry("kubectl", "", 2), entry("helm", "", 1), entry(FieldManager, "", 0), entry("kube-controller-manager", "status", 0)},
		`"argo"`:  {{Manager: "old"}, entry("argo", "", 1)},
		`"first"`: {{Manager: "first"}},
	} {
		if got := LastWriter(&metav1.ObjectMeta{ManagedFields: entries}); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// What somebody else has changed just before a write arrives was not altered by a policy, and
// is repaired.
func TestAWriteThatCrossesAnother(t *testing.T) {
	w := newWorld(t, newIcecream())
	w.sync(nil)
	w.rollOut()
	w.ice.Spec.Image = "registry.example/mint:1"
	o := w.observe()
	plan := decide(t, o)
	w.edit("somebody", "sundae", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](9) })
	after, event := o.With(plan, w.carryOut(o, plan))
	if event.Reason != v1alpha1.ReasonDeploymentUpdated {
		t.Errorf("event: %s", inWords(event))
	}
	w.memory = Status(after, plan).Memory
	w.sync(nil)
	if replicas := *w.deployment("sundae").Spec.Replicas; replicas != 3 {
		t.Errorf("it has %d replicas", replicas)
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
	plan := decide(t, o)
	w.edit("somebody", "sundae", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](1) })
	w.rollOut()
	o.Pods = []Pod{{Name: "sundae-1", ReplicaSet: "sundae-7c8b", TemplateHash: "7c8b", Node: "node-1", Ready: true}} // Their cache is ahead.
	after, _ := o.With(plan, w.carryOut(o, plan))
	report := Status(after, plan)
	if ready := meta.FindStatusCondition(report.Status.Conditions, v1alpha1.ConditionReady); ready.Status == metav1.ConditionTrue {
		t.Errorf("it is Ready: %s", ready.Message)
	}
	w.memory = report.Memory
	w.sync(nil)
	if replicas := *w.deployment("sundae").Spec.Replicas; replicas != 3 {
		t.Errorf("it has %d replicas", replicas)
	}
}
