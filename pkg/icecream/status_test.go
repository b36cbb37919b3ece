package icecream

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

// Every condition that kube-controller-manager's Deployment controller can set
// (k8s.io/kubernetes/pkg/controller/deployment, v1.36), and what an Icecream says about a
// Deployment whose Pods are not all available then.
func TestConditionsOfDeployments(t *testing.T) {
	const (
		progressing = "Reconciling: " + v1alpha1.ReasonProgressing
		tooSlow     = "Stalled: " + v1alpha1.ReasonProgressDeadlineExceeded
		replicas    = "Reconciling: " + v1alpha1.ReasonReplicaFailure
	)
	yes, no, unknown := corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown
	for _, test := range []struct {
		kind       appsv1.DeploymentConditionType
		status     corev1.ConditionStatus
		reason     string
		want       string
		wantBehind string // if the status is about an older generation
	}{
		{appsv1.DeploymentProgressing, yes, "NewReplicaSetCreated", progressing, progressing},
		{appsv1.DeploymentProgressing, yes, "FoundNewReplicaSet", progressing, progressing},
		{appsv1.DeploymentProgressing, yes, "ReplicaSetUpdated", progressing, progressing},
		{appsv1.DeploymentProgressing, yes, "NewReplicaSetAvailable", progressing, progressing},
		{appsv1.DeploymentProgressing, no, "ProgressDeadlineExceeded", tooSlow, progressing},
		{appsv1.DeploymentProgressing, no, "ReplicaSetCreateError", replicas, replicas},
		{appsv1.DeploymentProgressing, unknown, "DeploymentPaused", progressing, progressing},
		{appsv1.DeploymentProgressing, unknown, "DeploymentResumed", progressing, progressing},
		{appsv1.DeploymentReplicaFailure, yes, "FailedCreate", replicas, progressing},
		{appsv1.DeploymentReplicaFailure, yes, "FailedDelete", replicas, progressing},
		{appsv1.DeploymentReplicaFailure, no, "", progressing, progressing},
		{appsv1.DeploymentAvailable, yes, "MinimumReplicasAvailable", progressing, progressing},
		{appsv1.DeploymentAvailable, no, "MinimumReplicasUnavailable", progressing, progressing},
		{"Tasty", no, "SaysSomebodyElse", progressing, progressing},
	} {
		t.Run(string(test.kind)+" "+test.reason, func(t *testing.T) {
			says := says(test.kind, test.status, test.reason, "because")
			for want, edits := range map[string][]func(*appsv1.Deployment){
				test.want:                       {rollingOut, says},
				test.wantBehind + " (behind)":   {rollingOut, says, func(d *appsv1.Deployment) { d.Generation++ }},
				"Ready: Available (rolled out)": {says},
			} {
				o := seeing(newIcecream(), made(t, newIcecream(), edits...))
				s, _ := Status(o, Decide(o))
				if got := verdictOf(s); got != strings.Split(want, " (")[0] {
					t.Errorf("got %s, want %s", got, want)
				}
			}
		})
	}
}

func TestStatus(t *testing.T) {
	type edits = []func(*appsv1.Deployment)
	const progressing, ready = "Reconciling: Progressing: ", "Ready: Available: "
	const crashed = `CrashLoopBackOff: Pod "sundae-1", container "icecream": exited with code 1 (Error)`
	const noImage = `ImagePullBackOff: Pod "sundae-1", container "icecream": cannot pull image "registry.example/vanilla:1": denied`
	const isPaused = `Reconciling: DeploymentPaused: Deployment "sundae" is paused; run kubectl rollout resume deployment/sundae`
	crashes := seen(notReady(0), kittest.Waits("CrashLoopBackOff", ""), kittest.Ended(1, "Error"))
	edited := func(d *appsv1.Deployment) { d.Generation++ }
	onePodMore := func(d *appsv1.Deployment) { d.Status.Replicas++ }
	pausedAtRest := func(d *appsv1.Deployment) { d.Spec.Paused = true }
	pausedAtFirst := func(d *appsv1.Deployment) {
		d.Spec.Paused, d.Status = true, appsv1.DeploymentStatus{ObservedGeneration: d.Generation}
	}
	tooSlow := says(appsv1.DeploymentProgressing, "False", "ProgressDeadlineExceeded", "it has timed out")
	quota := says(appsv1.DeploymentReplicaFailure, "True", "FailedCreate", "exceeded quota")
	noReplicaSet := says(appsv1.DeploymentProgressing, "False", "ReplicaSetCreateError", "no ReplicaSet")
	paused := func(d *appsv1.Deployment) { d.Spec.Paused, d.Status.UpdatedReplicas = true, 2 }
	scaledTo := func(n int32) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(n) }
	}
	for name, test := range map[string]struct {
		edits edits
		pods  []Pod // besides the first two, which are ready
		want  string
	}{
		"a Pod is being started":   {edits{rollingOut}, []Pod{seen(notReady(0))}, progressing + "2 of 3 Pods available"},
		"every Pod is available":   {nil, []Pod{seen()}, ready + "3 of 3 Pods available"},
		"none are asked for":       {edits{scaledTo(0), rolledOut}, nil, ready + "Scaled to zero"},
		"the last one is stopping": {edits{scaledTo(0)}, nil, progressing + "3 of 0 Pods available"},

		"an older generation was rolled out": {edits{edited}, []Pod{seen()}, progressing + "3 of 3 Pods available, 0 up to date"},
		"an old Pod is left":                 {edits{onePodMore}, []Pod{seen()}, progressing + "3 of 3 Pods available, 3 up to date"},

		"a container crashes":           {edits{rollingOut}, []Pod{crashes}, "Reconciling: " + crashed},
		"a container crashed just now":  {nil, []Pod{seen(recovered(59 * time.Second))}, "Reconciling: " + crashed},
		"a container crashed long ago":  {nil, []Pod{seen(recovered(time.Minute))}, ready + "3 of 3 Pods available"},
		"a container crashes, too long": {edits{rollingOut, tooSlow}, []Pod{seen(recovered(0))}, "Stalled: " + crashed},

		"a quota":                    {edits{rollingOut, quota}, nil, "Reconciling: ReplicaFailure: exceeded quota"},
		"a quota, too long":          {edits{rollingOut, quota, tooSlow}, nil, "Stalled: ReplicaFailure: exceeded quota"},
		"a quota, and no ReplicaSet": {edits{rollingOut, quota, noReplicaSet}, nil, "Reconciling: ReplicaFailure: no ReplicaSet"},
		"a quota, and a Pod's image": {edits{rollingOut, quota}, []Pod{seen(cannotPull(0))}, "Reconciling: " + noImage},
		"a slow rollout":             {edits{rollingOut, tooSlow}, nil, "Stalled: ProgressDeadlineExceeded: it has timed out"},

		"paused in mid-rollout":       {edits{rollingOut, paused}, nil, isPaused},
		"paused before the first Pod": {edits{pausedAtFirst}, nil, isPaused},
		"just paused":                 {edits{pausedAtRest, edited}, []Pod{seen()}, progressing + "3 of 3 Pods available, 0 up to date"},
		"paused while all is well":    {edits{pausedAtRest}, []Pod{seen()}, ready + "3 of 3 Pods available"},
	} {
		t.Run(name, func(t *testing.T) {
			d := made(t, newIcecream(), test.edits...)
			o := seeing(newIcecream(func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = d.Spec.Replicas }), d)
			o.Pods = append(o.Pods[:min(2, len(o.Pods), int(*d.Spec.Replicas))], test.pods...)
			if got, _ := reported(o); got != test.want {
				t.Errorf("got %s\nwant %s", got, test.want)
			}
		})
	}
}

// What is said about writes that came to nothing, and about replicas that somebody else has set.
func TestStatusOfWrites(t *testing.T) {
	ice := newIcecream()
	made5 := func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](5); rolledOut(d) }
	made2 := func(d *appsv1.Deployment) { scaled(d); rolledOut(d) }
	const ready, invalidSpec = "Ready: Available: ", `Stalled: InvalidSpec: Deployment.apps "sundae" is invalid: spec: Required value`
	const refused = `Reconciling: DeploymentRefused: deployments.apps "sundae" is forbidden: exceeded quota`
	const terminates = "Reconciling: DeploymentTerminating: The namespace is being deleted"
	const contested = "Reconciling: DeploymentContested: Somebody keeps reverting changes to Deployment \"sundae\", " +
		"whose managedFields can say who; retrying with back-off"
	const s, quota = time.Second, "exceeded quota"
	altered := func(edit func(*appsv1.Deployment), age time.Duration) Observed {
		o := seeing(ice, admitted(t, ice, edit))
		o.Last = attempt(ice, nil, 1, age)
		o.Last.At = now.Add(-age)
		return o
	}
	written := func(live *appsv1.Deployment, failure error, count int, age time.Duration) Observed {
		o := seeing(ice, live)
		o.Last = attempt(ice, failure, count, age)
		o.Last.At = now.Add(-age)
		return o
	}
	for name, test := range map[string]struct {
		o     Observed
		want  string
		again time.Duration
	}{
		"nothing was written yet":            {seeing(ice, nil), "Reconciling: Progressing: The Deployment is being created", 0},
		"it was refused":                     {written(nil, forbidden(quota), 3, s), refused, 3 * s},
		"it is invalid":                      {written(nil, invalid(), 3, s), invalidSpec, 3 * s},
		"the namespace is going":             {written(nil, terminating(), 3, s), terminates, 3 * s},
		"it was refused, and is as asked":    {written(made(t, ice), forbidden(quota), 3, 0), ready + "3 of 3 Pods available", 0},
		"it was reverted three times":        {written(made(t, ice, made2), nil, 3, s), "Reconciling: Progressing: 2 of 2 Pods available", 3 * s},
		"it was reverted again":              {written(made(t, ice, made2), nil, 4, time.Second), contested, 7 * time.Second},
		"it was written the fourth time":     {written(made(t, ice), nil, 4, time.Second), contested, 59 * time.Second},
		"nobody has reverted it in a minute": {written(made(t, ice), nil, 4, time.Minute), ready + "3 of 3 Pods available", 0},
		"a policy has set more replicas":     {altered(made5, time.Second), ready + "5 of 5 Pods available", 0},
		"a policy has set fewer replicas": {
			altered(made2, time.Minute),
			`Reconciling: DeploymentAltered: An admission policy or webhook has set the replicas of Deployment "sundae" to 2`, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, again := reported(test.o)
			if got != test.want || again != test.again {
				t.Errorf("got %s, again after %s\nwant %s, %s", got, again, test.want, test.again)
			}
		})
	}
}

// What only somebody else can end is Stalled after ten minutes, and a refusal not in its first minute.
func TestUntilStalled(t *testing.T) {
	const refused, exists = v1alpha1.ReasonDeploymentRefused, v1alpha1.ReasonErrResourceExists
	unready := func(reason string, age time.Duration) func(*v1alpha1.Icecream) {
		return has(kstatus.Reconciling, reason, age)
	}
	anotherEdit := func(ice *v1alpha1.Icecream) { ice.Generation++ }
	const never = time.Duration(0)
	for name, test := range map[string]struct {
		ice     *v1alpha1.Icecream
		refused time.Duration // since when it is refused; else the name is taken
		state   string
		again   time.Duration
	}{
		"it is new":                       {newIcecream(), never, "Reconciling", 10 * time.Minute},
		"it was Ready until now":          {newIcecream(has(kstatus.Ready, "Available", time.Hour)), never, "Reconciling", 10 * time.Minute},
		"for less than ten minutes":       {newIcecream(unready(exists, 10*time.Minute-time.Second)), never, "Reconciling", time.Second},
		"for ten minutes":                 {newIcecream(unready(exists, 10*time.Minute)), never, "Stalled", 0},
		"for ten minutes, of two reasons": {newIcecream(unready("Progressing", 10*time.Minute)), never, "Stalled", 0},
		"refused for less than a minute":  {newIcecream(unready("Progressing", time.Hour)), 59 * time.Second, "Reconciling", time.Second},
		"refused for a minute":            {newIcecream(unready("Progressing", time.Hour)), time.Minute, "Stalled", 5 * time.Minute},
		"refused for less than ten":       {newIcecream(unready(refused, 9*time.Minute)), 9 * time.Minute, "Reconciling", time.Minute},
		"Stalled, and a new process": {
			newIcecream(has(kstatus.Stalled, refused, time.Second)), time.Nanosecond, "Stalled", 5 * time.Minute,
		},
		"Stalled, and edited": {
			newIcecream(has(kstatus.Stalled, refused, time.Hour), anotherEdit), time.Nanosecond, "Reconciling", time.Minute - 1,
		},
		"Stalled for another reason": {
			newIcecream(has(kstatus.Stalled, v1alpha1.ReasonProgressDeadlineExceeded, time.Hour)), time.Nanosecond, "Reconciling", time.Minute - 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{Now: now, Icecream: test.ice, Live: made(t, newIcecream())}
			o.Live.OwnerReferences[0].UID, o.Live.OwnerReferences[0].Name = "cone", "cone"
			want := test.state + ": " + exists
			if test.refused != never {
				o.Live, o.Last, want = nil, attempt(test.ice, forbidden("exceeded quota"), 20, test.refused), test.state+": "+refused
			}
			got, again := reported(o)
			if !strings.HasPrefix(got, want) || again != test.again {
				t.Errorf("got %s, again after %s; want %s, %s", got, again, want, test.again)
			}
		})
	}
}

// A Ready Icecream lists its nodes: it waits for the cache of Pods, for a minute.
func TestBehind(t *testing.T) {
	wasReady := newIcecream(has(kstatus.Reconciling, "Progressing", 10*time.Second))
	notInCache := func(o *Observed) { o.Pods = o.Pods[:2] }
	for name, test := range map[string]struct {
		ice   *v1alpha1.Icecream
		age   time.Duration // of the Deployment's last progress
		see   func(*Observed)
		again time.Duration // 0 if it is Ready
	}{
		"all Pods are in the cache":            {newIcecream(), 0, func(*Observed) {}, 0},
		"one is not":                           {newIcecream(), 59 * time.Second, notInCache, time.Second},
		"one is not, for a minute":             {newIcecream(), time.Minute, notInCache, 0},
		"one was deleted, and it was Ready":    {wasReady, time.Hour, notInCache, 50 * time.Second},
		"one is not, and it is Ready":          {newIcecream(has(kstatus.Ready, "Available", time.Second)), time.Hour, notInCache, 0},
		"one is not ready there":               {newIcecream(), 0, func(o *Observed) { o.Pods[2] = seen(notReady(0)) }, time.Minute},
		"one that was replaced is still there": {newIcecream(), 0, func(o *Observed) { o.Pods = append(o.Pods, seen()) }, time.Minute},
		"one that terminates is still there": {newIcecream(), 0, func(o *Observed) {
			o.Pods = append(o.Pods, Pod{ReplicaSet: "sundae-7c8b", TemplateHash: "7c8b", Node: "node-1", Terminating: true})
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := made(t, newIcecream(), says(appsv1.DeploymentProgressing, "True", "NewReplicaSetAvailable", ""))
			d.Status.Conditions[0].LastUpdateTime = metav1.NewTime(now.Add(-test.age))
			o := seeing(test.ice, d)
			test.see(&o)
			want := "Ready: Available"
			if test.again > 0 {
				want = "Reconciling: Progressing"
			}
			if got, again := reported(o); got != want+": 3 of 3 Pods available" || again != test.again {
				t.Errorf("got %s, again after %s; want %s, %s", got, again, want, test.again)
			}
		})
	}
}

func TestStatusFields(t *testing.T) {
	o := seeing(newIcecream(func(ice *v1alpha1.Icecream) { ice.Generation = 4 }), made(t, newIcecream(), rollingOut))
	o.Pods = []Pod{
		seen(), seen(), seen(cannotPull(time.Second)), seen(func(pod *corev1.Pod) { pod.Spec.NodeName = "node-0" }),
		seen(unschedulable(time.Second)), seen(hasFailed(time.Second)), seen(beingDeleted[*corev1.Pod]),
		seen(func(pod *corev1.Pod) { pod.OwnerReferences[0].Name = "clone-7c8b" }),
	}
	got, _ := Status(o, Decide(o))
	got.Conditions = nil
	want := v1alpha1.IcecreamStatus{
		ObservedGeneration: 4,
		Replicas:           3,
		UpdatedReplicas:    3,
		ReadyReplicas:      2,
		AvailableReplicas:  2,
		Selector:           "controller.nicoleh.io/icecream=sundae",
		Nodes:              []v1alpha1.IcecreamNode{{Name: "node-0", Pods: 1, ReadyPods: 1}, {Name: "node-1", Pods: 3, ReadyPods: 2}},
		NodeCount:          2,
		Placement:          "node-0 (1), node-1 (3)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// The status of an Icecream stays small, whatever the number of nodes, and so do its events.
func TestFiveThousandNodes(t *testing.T) {
	const nodes = 5000
	ice := newIcecream(scaledTo(nodes))
	o := seeing(ice, made(t, ice))
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprintf("node-%05d.europe-west.example", nodes-i))
	}
	o.Pods = podsOf(o.Live, names...)
	s, _ := Status(o, Decide(o))
	first, last := s.Nodes[0].Name, s.Nodes[len(s.Nodes)-1].Name
	if s.NodeCount != nodes || len(s.Nodes) != maxNodes || first != names[nodes-1] || last != names[nodes-maxNodes] {
		t.Errorf("%d nodes; %d are listed, from %s to %s", s.NodeCount, len(s.Nodes), first, last)
	}
	if got := verdictOf(s); got != "Ready: Available" {
		t.Errorf("conditions say %q", got)
	}
	if !strings.HasSuffix(s.Placement, " more") || len(s.Placement) > maxPlacement+32 {
		t.Errorf("placement of %d characters: %s", len(s.Placement), s.Placement)
	}
	if raw, err := json.Marshal(s); err != nil || len(raw) > 16<<10 {
		t.Errorf("a status of %d bytes: %v", len(raw), err)
	}
	if e := StatusEvent(ice.Status, s); len(e.Message) > maxMessage || !strings.HasSuffix(e.Message, " more; Icecream synced successfully") {
		t.Errorf("an event of %d bytes: %s", len(e.Message), e.Message)
	}
}

func TestWriteEvent(t *testing.T) {
	ice, live := newIcecream(), made(t, newIcecream(), scaled)
	with := func(edit func(*appsv1.Deployment)) *appsv1.Deployment {
		d := stored(t, ice, edit)
		d.ResourceVersion = "9"
		return d
	}
	const byAdmission = `Deployment "sundae"; an admission policy or webhook has made it `
	altered := func(message string) Event { return Event{"Normal", "DeploymentAltered", message} }
	created := Event{"Normal", "DeploymentCreated", `Created Deployment "sundae"`}
	updated := Event{"Normal", "DeploymentUpdated", `Updated Deployment "sundae"`}
	for name, test := range map[string]struct {
		live, stored *appsv1.Deployment
		isScaled     bool
		want         Event
	}{
		"created":                      {nil, stored(t, ice), false, created},
		"updated":                      {live, stored(t, ice), false, updated},
		"adopted":                      {made(t, ice, orphaned), stored(t, ice), false, Event{"Normal", "DeploymentAdopted", `Adopted Deployment "sundae"`}},
		"without effect":               {live, live, false, Event{}},
		"created with two replicas":    {nil, with(scaled), false, altered("Created " + byAdmission + `2 Pods of "registry.example/vanilla:1"`)},
		"updated with another image":   {live, with(runs("mint")), false, altered("Updated " + byAdmission + `3 Pods of "mint"`)},
		"only scaled":                  {live, with(runs("mint")), true, updated},
		"scaled to less":               {live, with(scaled), true, altered("Updated " + byAdmission + `2 Pods of "registry.example/vanilla:1"`)},
		"created with a label of ours": {nil, with(func(d *appsv1.Deployment) { d.Labels[labelName] = "mud" }), false, created},
	} {
		if got := (Observed{Icecream: ice, Live: test.live}).WriteEvent(test.stored, !test.isScaled); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

// A problem has one event, and so has its end. Pods that move have one if nothing else is going on.
func TestStatusEvent(t *testing.T) {
	const crashLoop, notReady = v1alpha1.ReasonCrashLoopBackOff, v1alpha1.ReasonPodNotReady
	status := func(generation int64, state kstatus.State, reason, message, node string) v1alpha1.IcecreamStatus {
		s := v1alpha1.IcecreamStatus{ObservedGeneration: generation, Nodes: []v1alpha1.IcecreamNode{{Name: node, Pods: 1}}}
		kstatus.Conclusion{State: state, Reason: reason, Message: message}.SetOn(&s.Conditions, generation, now)
		return s
	}
	ready, progressing := status(1, kstatus.Ready, "Available", "", "a"), status(1, kstatus.Reconciling, "Progressing", "1 of 2", "a")
	crashing, stalled := status(1, kstatus.Reconciling, crashLoop, "it crashes", "a"), status(1, kstatus.Stalled, crashLoop, "it crashes", "a")
	waiting, waitsLong := status(1, kstatus.Reconciling, notReady, "it starts", "a"), status(1, kstatus.Stalled, notReady, "it starts", "a")
	crash, moved := Event{"Warning", crashLoop, "it crashes"}, Event{"Normal", "Scheduled", "1 Pod on b"}
	synced := Event{"Normal", "Synced", "1 Pod on a; Icecream synced successfully"}
	for name, test := range map[string]struct {
		before, after v1alpha1.IcecreamStatus
		want          Event
	}{
		"it becomes Ready":                   {progressing, ready, synced},
		"it is Ready after an edit":          {ready, status(2, kstatus.Ready, "Available", "", "a"), synced},
		"it is no longer Ready":              {ready, progressing, Event{}},
		"a problem":                          {progressing, crashing, crash},
		"a problem in other words":           {crashing, status(1, kstatus.Reconciling, crashLoop, "it still crashes", "a"), Event{}},
		"a problem that lasts too long":      {crashing, stalled, Event{}},
		"a problem after an edit":            {crashing, status(2, kstatus.Reconciling, crashLoop, "it crashes", "a"), crash},
		"a Pod that waits":                   {progressing, waiting, Event{}},
		"a Pod that waits too long":          {waiting, waitsLong, Event{"Warning", notReady, "it starts"}},
		"a Pod that still waits":             {waitsLong, waitsLong, Event{}},
		"a Pod moves":                        {ready, status(1, kstatus.Ready, "Available", "", "b"), moved},
		"a Pod moves, and waits":             {progressing, status(1, kstatus.Reconciling, notReady, "", "b"), moved},
		"a Pod moves in a rollout":           {progressing, status(1, kstatus.Reconciling, "Progressing", "", "b"), Event{}},
		"a Deployment that is being deleted": {ready, status(1, kstatus.Reconciling, "DeploymentTerminating", "", "a"), Event{}},
	} {
		if got := StatusEvent(test.before, test.after); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
	others := v1alpha1.IcecreamStatus{Nodes: []v1alpha1.IcecreamNode{{Name: "a", Pods: 1, ReadyPods: 1}}}
	if HasMoved(ready, others) {
		t.Error("a Pod that becomes ready has moved")
	}
}

// The message of an event has at most 1,024 bytes, and whole characters.
func TestLongMessages(t *testing.T) {
	o := seeing(newIcecream(), made(t, newIcecream(), rollingOut))
	o.Pods[2] = seen(notReady(0), kittest.Waits("ErrImagePull", strings.Repeat("crème ", 1000)))
	s, _ := Status(o, Decide(o))
	altered := stored(t, newIcecream(withImage(strings.Repeat("è", 1000))))
	for _, e := range []Event{StatusEvent(o.Icecream.Status, s), o.WriteEvent(altered, true)} {
		if len(e.Message) > 1024 || len(e.Message) < 1000 || !utf8.ValidString(e.Message) {
			t.Errorf("a message of %d bytes: %q", len(e.Message), e.Message)
		}
	}
}

func TestHasTurned(t *testing.T) {
	status := func(state kstatus.State, reason, message string, generation int64) (s v1alpha1.IcecreamStatus) {
		kstatus.Conclusion{State: state, Reason: reason, Message: message}.SetOn(&s.Conditions, generation, now)
		return s
	}
	progressing, available := status(kstatus.Reconciling, "Progressing", "1 of 3", 1), status(kstatus.Ready, "Available", "", 1)
	for name, tt := range map[string]struct {
		before, after v1alpha1.IcecreamStatus
		want          bool
	}{
		"the first status":                   {v1alpha1.IcecreamStatus{}, progressing, true},
		"mere progress":                      {progressing, status(kstatus.Reconciling, "Progressing", "2 of 3", 1), false},
		"another reason":                     {progressing, status(kstatus.Reconciling, "ImagePullBackOff", "", 1), true},
		"ready":                              {progressing, available, true},
		"no longer ready":                    {available, progressing, true},
		"a new spec, and the same otherwise": {progressing, status(kstatus.Reconciling, "Progressing", "1 of 3", 2), false},
		"nothing":                            {progressing, progressing, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := HasTurned(tt.before, tt.after); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
		})
	}
	if ready := ReadyOf(v1alpha1.IcecreamStatus{}); ready.Status != metav1.ConditionUnknown || ready.Reason != "" {
		t.Errorf("without a status, it is %+v", ready)
	}
}
