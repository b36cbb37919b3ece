package simulation

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// templateHash is the label by which a Deployment knows its ReplicaSets.
const templateHash = appsv1.DefaultDeploymentUniqueLabelKey

// Workloads are the Deployment controller, the ReplicaSet controller, the scheduler, the
// kubelets, the garbage collector and the namespace controller. They see everything at once,
// and do everything at once that does not take a Pod time.
//
// The image of a Pod says what becomes of it: one called "missing" or "does-not-exist" cannot be pulled,
// one called "unstartable" has no such command, one called "crash" ends soon after each start, and one
// called "unready" or "never-ready" is never ready.
type Workloads struct {
	*History
	QuotaUntil  time.Time // until when a quota refuses new Pods
	FullUntil   time.Time // until when no node has room for a Pod
	RejectUntil time.Time // until when each node rejects the Pods that it gets

	nodes int
	made  int // Pods so far, for their names
	steps map[types.UID]podStep
	pause time.Duration // between what one controller does and the next; 0 if they act at once
	// collectAt is when the garbage collector acts; zero if there is nothing to do.
	collectAt time.Time
}

// NewWorkloads returns the workloads of a new history.
func NewWorkloads(h *History) Workloads {
	return Workloads{History: h, nodes: 2 + h.Draw("nodes").IntN(3), steps: map[types.UID]podStep{}}
}

// Act implements World.
func (w *Workloads) Act() (next time.Time) {
	for {
		version := w.Store.Version
		next = w.collect()
		for _, act := range []func() time.Time{w.rollOutAll, w.replicateAll, w.runAll} {
			next = earliest(next, act())
			if w.pause > 0 && w.Store.Version != version {
				return earliest(next, time.Now().Add(w.pause))
			}
		}
		if w.Store.Version == version {
			return next
		}
	}
}

// rollOutAll, replicateAll and runAll do what the Deployment controller, the ReplicaSet controller, and the scheduler
// with the kubelets do.
func (w *Workloads) rollOutAll() (next time.Time) {
	for _, d := range All[appsv1.Deployment](w.History, w.Store) {
		if d.DeletionTimestamp == nil && d.Spec.Selector != nil {
			next = earliest(next, w.rollOut(d))
		}
	}
	return next
}

func (w *Workloads) replicateAll() (next time.Time) {
	for _, r := range All[appsv1.ReplicaSet](w.History, w.Store) {
		if r.DeletionTimestamp == nil {
			next = earliest(next, w.replicate(r))
		}
	}
	return next
}

func (w *Workloads) runAll() (next time.Time) {
	for _, pod := range All[corev1.Pod](w.History, w.Store) {
		next = earliest(next, w.runPod(pod))
	}
	return next
}

// earliest returns the earlier of two times, of which the zero time means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// collect lets the garbage collector do everything that there is to do, some time after
// something was deleted. A namespace that is being deleted first loses one object after the
// other, in any order.
func (w *Workloads) collect() (next time.Time) {
	if _, _, isDue := w.server.Collect(w.Store, time.Now()); !isDue {
		w.collectAt = time.Time{}
		return time.Time{}
	}
	if w.collectAt.IsZero() {
		w.collectAt = time.Now().Add(w.Between(50*time.Millisecond, 3*time.Second, "collect", fmt.Sprint(w.Store.Version)))
	}
	if !time.Now().Before(w.collectAt) {
		w.collectAt = time.Time{}
		content := w.Store.Keys(func(key apiserver.Key) bool {
			return key.Namespace == Namespace && w.Store.Objects[key].GetDeletionTimestamp() == nil
		})
		if w.IsOpen() || len(content) == 0 {
			w.Collect()
		} else {
			w.Delete(Pick(w.Draw("empty", fmt.Sprint(w.Store.Version)), content), metav1.DeletePropagationBackground)
		}
	}
	return w.collectAt
}

// ownKey returns the key of an object of that group and resource.
func ownKey(obj metav1.Object, group, resource string) apiserver.Key {
	return apiserver.Key{Resource: schema.GroupResource{Group: group, Resource: resource}, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// rollOut is one sync of the Deployment controller. It returns when the next one is due.
func (w *Workloads) rollOut(d *appsv1.Deployment) (next time.Time) {
	var old []*appsv1.ReplicaSet
	var current *appsv1.ReplicaSet
	hash := hashOf(d.Spec.Template)
	for _, r := range All[appsv1.ReplicaSet](w.History, w.Store) {
		if metav1.GetControllerOfNoCopy(r) == nil && isSelected(r, d) { // It is adopted.
			r = r.DeepCopy()
			r.OwnerReferences = append(r.OwnerReferences, *metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment")))
			w.Put(r)
		}
		switch {
		case !metav1.IsControlledBy(r, d) || r.DeletionTimestamp != nil:
		case isCurrent(r, d):
			current = r
		default:
			old = append(old, r)
		}
	}
	wanted := ptr.Deref(d.Spec.Replicas, 1)
	isNew := false
	if d.Spec.Paused {
		switch { // It is scaled nevertheless, but not rolled out.
		case current != nil:
			w.scale(current, wanted)
		case len(old) == 1:
			w.scale(old[0], wanted)
		}
	} else if !w.waitsForOld(d, old) {
		if current == nil {
			current, isNew = w.newReplicaSet(d, hash), true
		}
		if current == nil {
			return time.Time{}
		}
		w.scale(current, wanted)
		for _, r := range old {
			left := max(0, min(ptr.Deref(r.Spec.Replicas, 0), wanted-current.Status.AvailableReplicas))
			w.scale(r, left)
			if left == 0 && r.Status.Replicas == 0 {
				w.DeleteNow(ownKey(r, "apps", "replicasets"))
			}
		}
	}
	status := appsv1.DeploymentStatus{ObservedGeneration: d.Generation}
	var failure appsv1.DeploymentCondition
	for _, r := range append(old, current) {
		if r == nil {
			continue
		}
		for _, c := range r.Status.Conditions { // There is one at most.
			failure = appsv1.DeploymentCondition{
				Type: appsv1.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason, Message: c.Message,
				LastTransitionTime: c.LastTransitionTime, LastUpdateTime: c.LastTransitionTime,
			}
		}
		status.Replicas += r.Status.Replicas
		status.ReadyReplicas += r.Status.ReadyReplicas
		status.AvailableReplicas += r.Status.AvailableReplicas
		if r == current {
			status.UpdatedReplicas = r.Status.Replicas
		}
	}
	status.UnavailableReplicas = max(0, wanted-status.AvailableReplicas)
	progress, next := progressOf(d, status, isNew)
	status.Conditions = []appsv1.DeploymentCondition{progress, availabilityOf(d, status)}
	if failure.Reason != "" {
		status.Conditions = append(status.Conditions, failure)
	}
	if !equality.Semantic.DeepEqual(d.Status, status) {
		changed := d.DeepCopy()
		changed.Status = status
		w.Put(changed)
	}
	return next
}

func isSelected(r *appsv1.ReplicaSet, d *appsv1.Deployment) bool {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	return err == nil && r.Namespace == d.Namespace && r.DeletionTimestamp == nil && selector.Matches(labels.Set(r.Labels))
}

// progressOf returns what the Deployment controller says about a rollout, and when it says
// something else unless there is progress (k8s.io/kubernetes/pkg/controller/deployment/progress.go).
func progressOf(d *appsv1.Deployment, status appsv1.DeploymentStatus, isNew bool) (c appsv1.DeploymentCondition, next time.Time) {
	was := conditionOf(d, appsv1.DeploymentProgressing)
	is := func(status corev1.ConditionStatus, reason string) (appsv1.DeploymentCondition, time.Time) {
		now := metav1.NewTime(time.Now())
		c := appsv1.DeploymentCondition{
			Type: appsv1.DeploymentProgressing, Status: status, Reason: reason, Message: fmt.Sprintf("ReplicaSet of %q", d.Name),
			LastUpdateTime: now, LastTransitionTime: now,
		}
		if was.Status == status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		return c, time.Time{}
	}
	wanted := ptr.Deref(d.Spec.Replicas, 1)
	deadline := was.LastUpdateTime.Add(time.Duration(ptr.Deref(d.Spec.ProgressDeadlineSeconds, 600)) * time.Second)
	switch {
	case isNew || was.Reason == "":
		return is(corev1.ConditionTrue, "NewReplicaSetCreated")
	case was.Reason == "NewReplicaSetAvailable" && status.Replicas == status.UpdatedReplicas:
		return was, time.Time{}
	case status.Replicas == wanted && status.UpdatedReplicas == wanted && status.AvailableReplicas == wanted:
		return is(corev1.ConditionTrue, "NewReplicaSetAvailable")
	case status.UpdatedReplicas > d.Status.UpdatedReplicas, status.Replicas-status.UpdatedReplicas < d.Status.Replicas-d.Status.UpdatedReplicas,
		status.ReadyReplicas > d.Status.ReadyReplicas, status.AvailableReplicas > d.Status.AvailableReplicas:
		return is(corev1.ConditionTrue, "ReplicaSetUpdated")
	case was.Reason == "NewReplicaSetAvailable" || was.Status == corev1.ConditionFalse:
		return was, time.Time{}
	case time.Now().Before(deadline):
		return was, deadline
	default:
		return is(corev1.ConditionFalse, "ProgressDeadlineExceeded")
	}
}

// waitsForOld ends the Pods of earlier templates, and reports whether new ones have to wait until they
// have gone: those of a Deployment with the strategy Recreate.
func (w *Workloads) waitsForOld(d *appsv1.Deployment, old []*appsv1.ReplicaSet) (waits bool) {
	if d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		return false
	}
	for _, r := range old {
		w.scale(r, 0)
		for _, pod := range All[corev1.Pod](w.History, w.Store) {
			waits = waits || metav1.IsControlledBy(pod, r) && pod.Status.Phase != corev1.PodFailed
		}
	}
	return waits
}

// availabilityOf returns what the Deployment controller says about its Pods in all.
func availabilityOf(d *appsv1.Deployment, status appsv1.DeploymentStatus) appsv1.DeploymentCondition {
	was, now := conditionOf(d, appsv1.DeploymentAvailable), metav1.NewTime(time.Now())
	is := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse, Reason: "MinimumReplicasUnavailable", LastUpdateTime: now, LastTransitionTime: now,
	}
	if wanted := ptr.Deref(d.Spec.Replicas, 1); status.AvailableReplicas >= wanted-wanted/4 { // maxUnavailable is a quarter.
		is.Status, is.Reason = corev1.ConditionTrue, "MinimumReplicasAvailable"
	}
	if is.Status == was.Status {
		return was
	}
	return is
}

func conditionOf(d *appsv1.Deployment, of appsv1.DeploymentConditionType) (c appsv1.DeploymentCondition) {
	if i := slices.IndexFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == of }); i >= 0 {
		c = d.Status.Conditions[i]
	}
	return c
}

func (w *Workloads) newReplicaSet(d *appsv1.Deployment, hash string) *appsv1.ReplicaSet {
	name := clip(d.Name, validation.DNS1123SubdomainMaxLength-len("-"+hash)) + "-" + hash
	key := KeyOf("apps", "replicasets", name)
	key.Namespace = d.Namespace
	if w.Store.Objects[key] != nil || !w.IsOpen() {
		return nil // It can be that of a former Deployment, until it is collected.
	}
	own := maps.Clone(d.Spec.Template.Labels)
	if own == nil {
		own = map[string]string{}
	}
	own[templateHash] = hash
	r := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: name, Labels: own, Generation: 1,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: &metav1.LabelSelector{MatchLabels: own}, Template: *d.Spec.Template.DeepCopy()},
	}
	r.Spec.Template.Labels = own
	w.Put(r)
	return Get[appsv1.ReplicaSet](w.History, w.Store, key)
}

func (w *Workloads) scale(r *appsv1.ReplicaSet, replicas int32) {
	if ptr.Deref(r.Spec.Replicas, 1) != replicas {
		changed := r.DeepCopy()
		changed.Spec.Replicas = &replicas
		changed.Generation++
		w.Put(changed)
	}
}

// replicate is one sync of the ReplicaSet controller. It returns when the next one is due.
func (w *Workloads) replicate(r *appsv1.ReplicaSet) (next time.Time) {
	if stored := w.Store.Objects[ownKey(r, "apps", "replicasets")]; stored == nil || stored.GetResourceVersion() != r.ResourceVersion {
		return time.Time{} // It has just been changed.
	}
	var pods []*corev1.Pod
	status := appsv1.ReplicaSetStatus{ObservedGeneration: r.Generation}
	for _, pod := range All[corev1.Pod](w.History, w.Store) {
		if metav1.IsControlledBy(pod, r) && pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed {
			pods = append(pods, pod)
		}
	}
	wanted := int(ptr.Deref(r.Spec.Replicas, 1))
	for len(pods) > wanted {
		last := pods[len(pods)-1]
		pods = pods[:len(pods)-1]
		w.Delete(ownKey(last, "", "pods"), metav1.DeletePropagationBackground)
	}
	switch missing := wanted - len(pods); {
	case missing <= 0 || !w.IsOpen():
	case time.Now().Before(w.QuotaUntil):
		next = w.QuotaUntil
		if status.Conditions = r.Status.Conditions; status.Conditions == nil {
			status.Conditions = []appsv1.ReplicaSetCondition{{
				Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", LastTransitionTime: metav1.NewTime(time.Now()),
				Message: fmt.Sprintf(`pods "%s-%d" is forbidden: exceeded quota: scoops, requested: pods=1, used: pods=%d, limited: pods=%[3]d`, r.Name, w.made+1, len(pods)),
			}}
		}
	default:
		for range missing {
			w.newPod(r)
			status.Replicas++
		}
	}
	for _, pod := range pods {
		status.Replicas++
		if IsReady(pod) {
			status.ReadyReplicas++
			status.AvailableReplicas++
		}
	}
	if !equality.Semantic.DeepEqual(r.Status, status) {
		changed := r.DeepCopy()
		changed.Status = status
		w.Put(changed)
	}
	return next
}

func (w *Workloads) newPod(r *appsv1.ReplicaSet) {
	w.made++
	w.Put(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: fmt.Sprintf("%s-%d", clip(r.Name, 243), w.made), Generation: 1,
			Labels: r.Spec.Template.Labels, Annotations: r.Spec.Template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		},
		Spec:   r.Spec.Template.Spec,
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	})
}

// number is that in a Pod's name. What becomes of a Pod depends on it, and so on no template.
func number(pod *corev1.Pod) string { return pod.Name[strings.LastIndex(pod.Name, "-")+1:] }

// podStep is what the scheduler or a kubelet is about to do with a Pod.
type podStep struct {
	what string
	at   time.Time
}

// wait returns until when a step with a Pod has to wait; the zero time if it is due.
func (w *Workloads) wait(pod *corev1.Pod, what string, least, most time.Duration) time.Time {
	step := w.steps[pod.UID]
	if step.what != what {
		step = podStep{what, time.Now().Add(w.Between(least, most, "pod", number(pod), what))}
		w.steps[pod.UID] = step
	}
	if time.Now().Before(step.at) {
		return step.at
	}
	return time.Time{}
}

// runPod is the next step of the scheduler and the kubelet with a Pod. It returns when there
// is another one.
func (w *Workloads) runPod(pod *corev1.Pod) (next time.Time) {
	changed := pod.DeepCopy()
	switch {
	case pod.DeletionTimestamp != nil && hasImage(pod, "endless"):
		return time.Time{}
	case pod.DeletionTimestamp != nil && hasImage(pod, "slow") && time.Now().Before(pod.DeletionTimestamp.Time):
		return pod.DeletionTimestamp.Time
	case pod.DeletionTimestamp != nil:
		if at := w.wait(pod, "end", 200*time.Millisecond, 3*time.Second); !at.IsZero() {
			return at
		}
		w.DeleteNow(ownKey(pod, "", "pods"))
		return time.Time{}
	case pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
		return time.Time{}
	case pod.Spec.NodeName == "":
		if at := w.wait(pod, "schedule", 20*time.Millisecond, 500*time.Millisecond); !at.IsZero() {
			return at
		}
		if time.Now().Before(w.FullUntil) {
			if !IsUnschedulable(pod) {
				changed.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(time.Now()),
					Message: fmt.Sprintf("0/%d nodes are available: %[1]d Too many pods.", w.nodes),
				}}
				w.Put(changed)
			}
			return w.FullUntil
		}
		changed.Status.Conditions = nil
		changed.Spec.NodeName = fmt.Sprintf("node-%d", 1+w.Draw("node", number(pod)).IntN(w.nodes))
	case pod.Status.Phase == corev1.PodPending && len(pod.Status.ContainerStatuses) == 0 && time.Now().Before(w.RejectUntil):
		if at := w.wait(pod, "reject", 20*time.Millisecond, 2*time.Second); !at.IsZero() {
			return at
		}
		changed.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: fmt.Sprintf("Node didn't have enough resource: cpu, requested: %d", w.made)}
	case hasImage(pod, "crash", "unstartable"):
		if at := w.loop(changed); !at.IsZero() {
			return at
		}
	case IsReady(pod), isFlipped(pod), WaitsFor(pod) == "ErrImagePull", isUnready(pod) && pod.Status.Phase == corev1.PodRunning && WaitsFor(pod) == "":
		return time.Time{}
	default:
		what, least, most := "start", 500*time.Millisecond, 3*time.Second
		if WaitsFor(pod) != "" {
			what, least, most = fmt.Sprintf("restart %d", pod.Status.ContainerStatuses[0].RestartCount), 5*time.Second, 40*time.Second
		}
		if at := w.wait(pod, what, least, most); !at.IsZero() {
			return at
		}
		if hasImage(pod, "missing", "does-not-exist") {
			setWaiting(changed, "ErrImagePull", "the image does not exist")
		} else {
			run(changed, !isUnready(pod))
		}
	}
	w.Put(changed)
	return time.Time{}
}

// loop moves a container that crashes, or cannot be started, to its next state, as a kubelet does. It
// returns until when that has to wait; the zero time if it is done.
func (w *Workloads) loop(pod *corev1.Pod) time.Time {
	c := containerStatus(pod)
	end := &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "config: unknown key\n"}
	isUnstartable := strings.Contains(c.Image, "unstartable")
	if isUnstartable {
		end = &corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError", Message: "no such file"}
	}
	at := func(what string, least, most time.Duration) time.Time {
		return w.wait(pod, fmt.Sprintf("%s %d", what, c.RestartCount), least, most)
	}
	switch {
	case c.State.Terminated != nil || WaitsFor(pod) == "RunContainerError":
		if at := at("back off", 200*time.Millisecond, time.Second); !at.IsZero() {
			return at
		}
		setWaiting(pod, "CrashLoopBackOff", "back-off restarting failed container")
		c.LastTerminationState.Terminated = end
	case c.State.Running != nil:
		if at := at("end", time.Second, 5*time.Second); !at.IsZero() {
			return at
		}
		c.State = corev1.ContainerState{Terminated: end}
	default:
		least, most := 500*time.Millisecond, 3*time.Second
		if c.State.Waiting != nil {
			least, most = 5*time.Second, 40*time.Second
		}
		if at := at("start", least, most); !at.IsZero() {
			return at
		}
		c.RestartCount++
		if isUnstartable {
			setWaiting(pod, "RunContainerError", "no such file")
			c.LastTerminationState.Terminated = end
		} else {
			run(pod, false)
		}
	}
	return time.Time{}
}

func isUnready(pod *corev1.Pod) bool { return hasImage(pod, "unready", "never-ready") }

// hasImage reports whether the Pod's image has one of these words.
func hasImage(pod *corev1.Pod, words ...string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(pod.Spec.Containers[0].Image, word) })
}

// notPassed is why a Pod is not ready whose readiness probe has begun to fail.
const notPassed = "ContainersNotReady"

// Flip has the readiness probe of a Pod that runs fail from now on, or pass again.
func Flip(pod *corev1.Pod) {
	setReady(pod, !IsReady(pod))
	if !IsReady(pod) {
		pod.Status.Conditions[1].Reason = notPassed
	}
}

func isFlipped(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Reason == notPassed })
}

// run makes the Pod's container run.
func run(pod *corev1.Pod, isReady bool) {
	pod.Status.Phase = corev1.PodRunning
	setReady(pod, isReady)
	container := containerStatus(pod)
	container.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now())}}
}

// setReady makes the Pod, which has a node, ready or not.
func setReady(pod *corev1.Pod, isReady bool) {
	ready := corev1.ConditionFalse
	if isReady {
		ready = corev1.ConditionTrue
	}
	since := metav1.NewTime(time.Now())
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == ready {
			since = c.LastTransitionTime
		}
	}
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: ready, LastTransitionTime: since},
	}
	containerStatus(pod).Ready = isReady
}

// setWaiting makes the Pod's container wait for something, and not be ready.
func setWaiting(pod *corev1.Pod, reason, message string) {
	setReady(pod, false)
	containerStatus(pod).State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

// Crash ends the Pod's container, which then waits to be started again.
func Crash(pod *corev1.Pod) {
	setWaiting(pod, "CrashLoopBackOff", "back-off restarting failed container")
	container := containerStatus(pod)
	container.RestartCount++
	container.LastTerminationState = corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", FinishedAt: metav1.NewTime(time.Now())},
	}
}

func containerStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	if len(pod.Status.ContainerStatuses) == 0 {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image}}
	}
	return &pod.Status.ContainerStatuses[0]
}

// WaitsFor returns the reason for which the Pod's container does not run; empty if it does.
func WaitsFor(pod *corev1.Pod) string {
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Waiting == nil {
		return ""
	}
	return pod.Status.ContainerStatuses[0].State.Waiting.Reason
}

// IsReady reports whether a Pod is ready.
func IsReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// IsUnschedulable reports whether there is no node for a Pod.
func IsUnschedulable(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Reason == corev1.PodReasonUnschedulable })
}

// IsOpen reports whether the namespace is there, and not being deleted.
func (w *Workloads) IsOpen() bool {
	namespace := w.Store.Objects[NamespaceKey]
	return namespace != nil && namespace.GetDeletionTimestamp() == nil
}

func clip(name string, most int) string { return name[:min(len(name), most)] }

// isCurrent reports whether a ReplicaSet has the Pod template of a Deployment. Another spelling of a quantity makes no
// difference.
func isCurrent(r *appsv1.ReplicaSet, d *appsv1.Deployment) bool {
	template := r.Spec.Template.DeepCopy()
	delete(template.Labels, templateHash)
	return equality.Semantic.DeepEqual(*template, d.Spec.Template)
}

func hashOf(template corev1.PodTemplateSpec) string {
	encoded, err := json.Marshal(template)
	if err != nil {
		panic(err) // There is nothing in it that cannot be encoded.
	}
	hash := fnv.New32a()
	hash.Write(encoded)
	return fmt.Sprintf("%08x", hash.Sum32())
}
