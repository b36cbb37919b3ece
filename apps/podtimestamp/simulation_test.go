//go:debug randseednop=0

package main_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	podtimestamp "nicoleh.io/k8s-controller/apps/podtimestamp"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/simulation"
	"nicoleh.io/k8s-controller/pkg/kittest/simulation/program"
)

// stamps is the world of podtimestamp: Pods that come and go, of which some ask for a
// timestamp.
type stamps struct {
	*simulation.History
	made, edits, writes int

	refusing  bool
	dropping  bool
	isOpposed bool // Somebody has refused or dropped timestamps.
	ends      map[types.UID]time.Time
}

// newWorld returns the world of podtimestamp.
func newWorld(h *simulation.History) simulation.World {
	return &stamps{History: h, ends: map[types.UID]time.Time{}}
}

// TestSimulation runs the program with this controller in simulated worlds. See package simulation.
func TestSimulation(t *testing.T) {
	simulation.Simulation{
		Run:      program.With(podtimestamp.NewDescriptor),
		Kinds:    []apiserver.Kind{apiserver.Pods(), apiserver.Leases(), apiserver.EventObjects()},
		NewWorld: newWorld,
	}.Test(t)
}

// Begin implements World.
func (w *stamps) Begin() {
	draw := w.Draw("begin")
	for range 1 + draw.IntN(4) {
		w.newPod(draw)
	}
}

func (w *stamps) newPod(draw *rand.Rand) string {
	w.made++
	return w.newNamed(draw, fmt.Sprintf("pod-%d", w.made))
}

func (w *stamps) newNamed(draw *rand.Rand, name string) string {
	annotations := simulation.Pick(draw, []map[string]string{
		{podtimestamp.AnnotationAddTime: ""},
		{podtimestamp.AnnotationAddTime: "yes"},
		{podtimestamp.AnnotationAddTime: "false"},
		{podtimestamp.AnnotationAddTime: "", corev1.MirrorPodAnnotationKey: "x"},
		{podtimestamp.AnnotationAddTime: "", podtimestamp.AnnotationTimestamp: "mine"},
		nil,
	})
	w.Create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: simulation.Namespace, Name: name, Annotations: maps.Clone(annotations), Generation: 1},
		Spec:       corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "main", Image: "registry.example/vanilla:1"}}},
	})
	return fmt.Sprintf("Pod %s with %v", name, annotations)
}

func (w *stamps) pods() []*corev1.Pod { return simulation.All[corev1.Pod](w.History, w.Store) }

// Act implements World.
func (w *stamps) Act() (next time.Time) {
	for _, pod := range w.pods() {
		if pod.DeletionTimestamp == nil {
			continue
		}
		at, ok := w.ends[pod.UID]
		if !ok {
			at = time.Now().Add(w.Between(10*time.Millisecond, 3*time.Second, "end", string(pod.UID)))
			w.ends[pod.UID] = at
		}
		if !time.Now().Before(at) {
			w.DeleteNow(simulation.KeyOf("", "pods", pod.Name))
		} else if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// Edit implements World.
func (w *stamps) Edit(draw *rand.Rand) string {
	w.checkBudget()
	w.edits++
	switch draw.IntN(5) {
	case 0:
		return w.newPod(draw)
	case 1:
		w.refusing, w.isOpposed = !w.refusing, true
		return fmt.Sprintf("a policy refuses timestamps: %t", w.refusing)
	case 2:
		w.dropping, w.isOpposed = !w.dropping, true
		return fmt.Sprintf("a webhook drops timestamps: %t", w.dropping)
	default:
		pod := simulation.Pick(draw, w.pods())
		if pod == nil {
			return ""
		}
		return w.disturb(draw, pod)
	}
}

// disturb has somebody change or replace a Pod.
func (w *stamps) disturb(draw *rand.Rand, pod *corev1.Pod) string {
	changed := pod.DeepCopy()
	changed.Annotations = maps.Clone(pod.Annotations)
	var what string
	switch draw.IntN(7) {
	case 0:
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, podtimestamp.AnnotationAddTime, "true")
		what = "asks for a timestamp"
	case 1:
		delete(changed.Annotations, podtimestamp.AnnotationTimestamp)
		what = "lost its timestamp"
	case 2:
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, podtimestamp.AnnotationTimestamp, "mine")
		what = "got a timestamp"
	case 3:
		metav1.SetMetaDataLabel(&changed.ObjectMeta, "n", fmt.Sprint(draw.IntN(9)))
		what = "got a label"
	case 4:
		delete(changed.Annotations, podtimestamp.AnnotationAddTime)
		what = "asks for nothing"
	case 5:
		w.Delete(simulation.KeyOf("", "pods", pod.Name), metav1.DeletePropagationBackground)
		return fmt.Sprintf("Pod %s is deleted", pod.Name)
	default:
		w.DeleteNow(simulation.KeyOf("", "pods", pod.Name))
		return "another " + w.newNamed(draw, pod.Name)
	}
	w.Put(changed)
	return fmt.Sprintf("Pod %s %s", pod.Name, what)
}

// Interfere implements World.
func (w *stamps) Interfere(draw *rand.Rand, _ string, key apiserver.Key) string {
	if pod := simulation.Get[corev1.Pod](w.History, w.Store, key); pod != nil {
		return w.disturb(draw, pod)
	}
	return ""
}

// Admit implements World.
func (w *stamps) Admit(a apiserver.Admission) error {
	if !w.refusing || a.Key.Resource.Resource != "pods" {
		return nil
	}
	return apierrors.NewForbidden(a.Key.Resource, a.Key.Name, fmt.Errorf("no timestamps today"))
}

// Mutate implements World.
func (w *stamps) Mutate(a apiserver.Admission) {
	if pod, ok := a.Object.(*corev1.Pod); ok && w.dropping {
		delete(pod.Annotations, podtimestamp.AnnotationTimestamp)
	}
}

// Settle implements World.
func (w *stamps) Settle() time.Duration {
	w.refusing, w.dropping = false, false
	return 3 * time.Minute
}

// Check implements World. All that the program changes, besides its Lease and events, is the timestamp of a Pod that
// asks for one and has none.
func (w *stamps) Check(x simulation.Exchange) {
	if x.Key.Resource.Resource == "pods" && x.Verb == "patch" && (x.IsWrite() || w.isOpposed) {
		w.writes++
	}
	if !x.IsWrite() || x.Key.Resource.Resource == "events" || x.Key.Resource.Resource == "leases" {
		return
	}
	before, after := simulation.Get[corev1.Pod](w.History, x.Before, x.Key), simulation.Get[corev1.Pod](w.History, x.After, x.Key)
	if before == nil || after == nil {
		w.Fail("permissions", "%s: %s %s", x.Process.Name, x.Verb, simulation.Describe(x.Key))
		return
	}
	if !w.isToBeStamped(before) {
		w.Fail("stamp", "%s stamps %s, which has %v, and is being deleted: %t", x.Process.Name, simulation.Describe(x.Key), before.Annotations, before.DeletionTimestamp != nil)
	}
	expected := before.DeepCopy()
	expected.ResourceVersion = after.ResourceVersion
	if timestamp, isStamped := after.Annotations[podtimestamp.AnnotationTimestamp]; isStamped {
		metav1.SetMetaDataAnnotation(&expected.ObjectMeta, podtimestamp.AnnotationTimestamp, timestamp)
		if at, err := time.Parse(time.RFC3339, timestamp); err != nil || time.Since(at) > time.Minute || time.Until(at) > 0 {
			w.Fail("stamp", "%s stamps %s with %s", x.Process.Name, simulation.Describe(x.Key), timestamp)
		}
	}
	if !equality.Semantic.DeepEqual(expected, after) {
		w.Fail("stamp", "%s changes more of %s than its timestamp", x.Process.Name, simulation.Describe(x.Key))
	}
}

// isToBeStamped reports whether a Pod asks for a timestamp, and may have one.
func (w *stamps) isToBeStamped(pod *corev1.Pod) bool {
	asks, isAsking := pod.Annotations[podtimestamp.AnnotationAddTime]
	_, isStamped := pod.Annotations[podtimestamp.AnnotationTimestamp]
	_, isMirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return isAsking && asks != "false" && !isStamped && !isMirror && pod.DeletionTimestamp == nil
}

// CheckEnd implements World.
func (w *stamps) CheckEnd() {
	for _, pod := range w.pods() {
		if w.isToBeStamped(pod) {
			w.Fail("end", "Pod %s has no timestamp", pod.Name)
		}
	}
	w.checkBudget()
}

// checkBudget checks that a history without faults costs a write for each Pod and each edit.
func (w *stamps) checkBudget() {
	most := w.made + w.edits
	if w.isOpposed {
		most *= simulation.Repeated
	}
	if w.writes > most && w.IsCalm() {
		w.Fail("budget", "%d writes for %d Pods and %d edits", w.writes, w.made, w.edits)
	}
}
