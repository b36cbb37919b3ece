package icecream

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

// What kubectl describe shows of an Icecream in each bad situation: the condition that is True, and
// the Warning. Read testdata/describe.golden.txt as its user would. After an edit, run it with -update.
func TestDescribe(t *testing.T) {
	foreign := func(d *appsv1.Deployment) { d.OwnerReferences = nil; d.Labels = nil }
	owned := func(d *appsv1.Deployment) {
		d.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "another", UID: "x", Controller: ptr.To(true)}}
	}
	deleting := func(d *appsv1.Deployment) {
		d.DeletionTimestamp, d.Finalizers = ptr.To(metav1.NewTime(now)), []string{"example.com/hold"}
	}
	paused := func(d *appsv1.Deployment) { d.Spec.Paused, d.Status.UpdatedReplicas = true, 2 }
	quota := says(appsv1.DeploymentReplicaFailure, "True", "FailedCreate", `pods "sundae-2" is forbidden: exceeded quota: pods`)
	of := func(edits ...func(*appsv1.Deployment)) Observed {
		o := seeing(newIcecream(), made(t, newIcecream(), edits...))
		o.Pods = o.Pods[:min(2, len(o.Pods))]
		return o
	}
	with := func(pod Pod) Observed {
		o := of(rollingOut)
		o.Pods = append(o.Pods, pod)
		o.Live.Status.Replicas, o.Live.Status.UpdatedReplicas = counts(o.Pods)
		return o
	}
	written := func(live *appsv1.Deployment, failure error) Observed {
		o := seeing(newIcecream(), live)
		o.Last = pace.Attempt{Wish: Decide(Observed{Icecream: o.Icecream}).Wish, Failure: failure, Count: 4, Since: now, At: now}
		return o
	}
	denied := forbidden(`admission webhook "policy.example.com" denied the request: images come from registry.example`)
	lowered := deployed(t)
	scaled(lowered)
	rolledOut(lowered)
	broken := seeing(newIcecream(withTemplate(`{"spec": {"containers": [{"name": "icecream", "evn": []}]}}`)), made(t, newIcecream()))
	second := seeing(newIcecream(), nil)
	second.Older = newIcecream()
	second.Older.Name = "cone"

	var all strings.Builder
	for _, situation := range []struct {
		name string
		o    Observed
	}{
		{"the image does not exist", with(seen(notReady(0), kittest.Waits("ErrImagePull", "not found")))},
		{"the container crashes", with(seen(notReady(0), kittest.Waits("CrashLoopBackOff", "back-off 10s"), kittest.Ended(1, "Error")))},
		{"a Secret is missing", with(seen(notReady(0), kittest.Waits("CreateContainerConfigError", `secret "password" not found`)))},
		{"no node has room", with(seen(unschedulable(0)))},
		{"a node rejects the Pod", with(seen(hasFailed(0)))},
		{"a quota is used up", of(rollingOut, quota)},
		{"the rollout is paused", of(rollingOut, paused)},
		{"a webhook denies the Deployment", written(nil, denied)},
		{"the Deployment is invalid", written(nil, invalid())},
		{"the template has an unknown field", broken},
		{"another client keeps changing the replicas", written(made(t, newIcecream(), scaled), nil)},
		{"a policy sets fewer replicas", seeing(newIcecream(), stripped(lowered))},
		{"the name is taken by a Deployment without an owner", seeing(newIcecream(), made(t, newIcecream(), foreign))},
		{"the name is taken by another owner's Deployment", seeing(newIcecream(), made(t, newIcecream(), owned))},
		{"an older Icecream has the name", second},
		{"its Deployment is being deleted", seeing(newIcecream(), made(t, newIcecream(), deleting))},
	} {
		s, _ := Status(situation.o, Decide(situation.o))
		event := StatusEvent(situation.o.Icecream.Status, s)
		fmt.Fprintf(&all, "# %s\n%s\n  %s\n", situation.name, verdictOf(s), ReadyOf(s).Message)
		if event.Type == corev1.EventTypeWarning {
			fmt.Fprintf(&all, "  %s %s: %s\n", event.Type, event.Reason, event.Message)
		}
		all.WriteString("\n")
	}
	const golden = "testdata/describe.golden.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), all.String()); diff != "" {
		t.Errorf("%s, or run with -update (-want +got):\n%s", golden, diff)
	}
}
