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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// templateHash is the label by which a Deployment knows its ReplicaSets.
const templateHash = appsv1.DefaultDeploymentUniqueLabelKey

// Workloads are the Deployment controller, the ReplicaSet controller, the scheduler, the
// kubelets and the garbage collector. They see everything at once, and do everything at once
// that does not take a Pod time.
type Workloads struct {
	*History
	nodes int
	made  int // Pods so far, for their names
	steps map[types.UID]podStep
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
		w.collect()
		for _, d := range All[appsv1.Deployment](w.History, w.Store) {
			if d.DeletionTimestamp == nil && d.Spec.Selector != nil {
				w.rollOut(d)
			}
		}
		for _, r := range All[appsv1.ReplicaSet](w.History, w.Store) {
			if r.DeletionTimestamp == nil {
				w.replicate(r)
			}
		}
		next = w.collectAt
		for _, pod := range All[corev1.Pod](w.History, w.Store) {
			if at := w.runPod(pod); !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
		if w.Store.Version == version {
			return next
		}
	}
}

// collect lets the garbage collector do everything that there is to do, some time after
// something was deleted.
func (w *Workloads) collect() {
	if _, _, isDue := w.server.Collect(w.Store, time.Now()); !isDue {
		w.collectAt = time.Time{}
		return
	}
	if w.collectAt.IsZero() {
		w.collectAt = time.Now().Add(w.Between(50*time.Millisecond, 3*time.Second, "collect", fmt.Sprint(w.Store.Version)))
	}
	if !time.Now().Before(w.collectAt) {
		w.collectAt = time.Time{}
		w.Collect()
	}
}

// rollOut is one sync of the Deployment controller.
func (w *Workloads) rollOut(d *appsv1.Deployment) {
	var old []*appsv1.ReplicaSet
	var current *appsv1.ReplicaSet
	hash := hashOf(d.Spec.Template)
	for _, r := range All[appsv1.ReplicaSet](w.History, w.Store) {
		switch {
		case !metav1.IsControlledBy(r, d) || r.DeletionTimestamp != nil:
		case r.Labels[templateHash] == hash:
			current = r
		default:
			old = append(old, r)
		}
	}
	wanted := ptr.Deref(d.Spec.Replicas, 1)
	if !d.Spec.Paused {
		if current == nil {
			current = w.newReplicaSet(d, hash)
		}
		if current == nil {
			return
		}
		w.scale(current, wanted)
		for _, r := range old {
			left := max(0, min(ptr.Deref(r.Spec.Replicas, 0), wanted-current.Status.AvailableReplicas))
			w.scale(r, left)
			if left == 0 && r.Status.Replicas == 0 {
				w.DeleteNow(KeyOf("apps", "replicasets", r.Name))
			}
		}
	}
	status := appsv1.DeploymentStatus{ObservedGeneration: d.Generation}
	for _, r := range append(old, current) {
		if r == nil {
			continue
		}
		status.Replicas += r.Status.Replicas
		status.ReadyReplicas += r.Status.ReadyReplicas
		status.AvailableReplicas += r.Status.AvailableReplicas
		if r == current {
			status.UpdatedReplicas = r.Status.Replicas
		}
	}
	status.UnavailableReplicas = max(0, wanted-status.AvailableReplicas)
	status.Conditions = d.Status.Conditions
	if !equality.Semantic.DeepEqual(d.Status, status) {
		changed := d.DeepCopy()
		changed.Status = status
		w.Put(changed)
	}
}

func (w *Workloads) newReplicaSet(d *appsv1.Deployment, hash string) *appsv1.ReplicaSet {
	name := d.Name + "-" + hash
	key := KeyOf("apps", "replicasets", name)
	if w.Store.Objects[key] != nil {
		return nil // that of a former Deployment, until it is collected
	}
	labels := maps.Clone(d.Spec.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[templateHash] = hash
	r := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: name, Labels: labels, Generation: 1,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: *d.Spec.Template.DeepCopy()},
	}
	r.Spec.Template.Labels = labels
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

// replicate is one sync of the ReplicaSet controller.
func (w *Workloads) replicate(r *appsv1.ReplicaSet) {
	if stored := w.Store.Objects[KeyOf("apps", "replicasets", r.Name)]; stored == nil || stored.GetResourceVersion() != r.ResourceVersion {
		return // It has just been changed.
	}
	var pods []*corev1.Pod
	status := appsv1.ReplicaSetStatus{ObservedGeneration: r.Generation}
	for _, pod := range All[corev1.Pod](w.History, w.Store) {
		if metav1.IsControlledBy(pod, r) && pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	wanted := int(ptr.Deref(r.Spec.Replicas, 1))
	for len(pods) > wanted {
		last := pods[len(pods)-1]
		pods = pods[:len(pods)-1]
		w.Delete(KeyOf("", "pods", last.Name), metav1.DeletePropagationBackground)
	}
	for range wanted - len(pods) {
		w.newPod(r)
		status.Replicas++
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
}

func (w *Workloads) newPod(r *appsv1.ReplicaSet) {
	w.made++
	w.Put(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: fmt.Sprintf("%s-%d", r.Name, w.made), Generation: 1,
			Labels: r.Spec.Template.Labels, Annotations: r.Spec.Template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		},
		Spec:   r.Spec.Template.Spec,
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	})
}

// podStep is what the scheduler or a kubelet is about to do with a Pod.
type podStep struct {
	what string
	at   time.Time
}

// wait returns until when a step with a Pod has to wait; the zero time if it is due.
func (w *Workloads) wait(pod *corev1.Pod, what string, least, most time.Duration) time.Time {
	step := w.steps[pod.UID]
	if step.what != what {
		step = podStep{what, time.Now().Add(w.Between(least, most, "pod", pod.Name, what))}
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
	case pod.DeletionTimestamp != nil:
		if at := w.wait(pod, "end", 200*time.Millisecond, 3*time.Second); !at.IsZero() {
			return at
		}
		w.DeleteNow(KeyOf("", "pods", pod.Name))
		return time.Time{}
	case pod.Spec.NodeName == "":
		if at := w.wait(pod, "schedule", 20*time.Millisecond, 500*time.Millisecond); !at.IsZero() {
			return at
		}
		changed.Spec.NodeName = fmt.Sprintf("node-%d", 1+w.Draw("node", pod.Name).IntN(w.nodes))
	case IsReady(pod), waitsFor(pod) == "ErrImagePull":
		return time.Time{}
	default:
		what, least, most := "start", 500*time.Millisecond, 3*time.Second
		if waitsFor(pod) != "" {
			what, least, most = fmt.Sprintf("restart %d", pod.Status.ContainerStatuses[0].RestartCount), 5*time.Second, 40*time.Second
		}
		if at := w.wait(pod, what, least, most); !at.IsZero() {
			return at
		}
		if strings.Contains(pod.Spec.Containers[0].Image, "missing") {
			setWaiting(changed, "ErrImagePull", "the image does not exist")
		} else {
			run(changed)
		}
	}
	w.Put(changed)
	return time.Time{}
}

// run makes the Pod's container run and be ready.
func run(pod *corev1.Pod) {
	now := metav1.NewTime(time.Now())
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
	}
	container := containerStatus(pod)
	container.Ready = true
	container.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
}

// setWaiting makes the Pod's container wait for something, and not be ready.
func setWaiting(pod *corev1.Pod, reason, message string) {
	container := containerStatus(pod)
	container.Ready = false
	container.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(time.Now())},
	}
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

func waitsFor(pod *corev1.Pod) string {
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

func hashOf(template corev1.PodTemplateSpec) string {
	encoded, err := json.Marshal(template)
	if err != nil {
		panic(err) // There is nothing in it that cannot be encoded.
	}
	hash := fnv.New32a()
	hash.Write(encoded)
	return fmt.Sprintf("%08x", hash.Sum32())
}
