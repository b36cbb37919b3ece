package podtimestamp

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/explore"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/snapshot"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// These tests look at every order in which things can happen: see pkg/kit/explore.

// explored is the controller with a Pod that asks for a timestamp, one that does not, and a
// mirror of a static Pod.
func explored() explore.Setup {
	return explore.Setup{
		Kinds: []apiserver.Kind{apiserver.Pods()},
		Objects: []explore.Object{
			exploredPod("asking", AnnotationAddTime),
			exploredPod("quiet"),
			exploredPod("static", AnnotationAddTime, corev1.MirrorPodAnnotationKey),
		},
		Programs: []explore.Program{{Name: "the controller", Elected: true, New: newExplored}},
		World:    []explore.Actor{{Name: "the kubelet", Moves: movesOfKubelet}},
		Edits:    []explore.Actor{{Name: "somebody", Moves: editsOfPeople}},
		Checks:   explore.Checks{Stored: checkStored, Rest: checkRest},
		Settles:  10 * time.Second,
	}
}

func exploredPod(name string, annotations ...string) explore.Object {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "main", Image: "registry.example/vanilla:1"}}},
	}
	for _, annotation := range annotations {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, annotation, "")
	}
	return explore.Object{Manager: "people", Object: pod}
}

// newExplored makes the controller as a process does, with a way to all that it remembers.
func newExplored(d manager.Dependencies) (explore.Instance, error) {
	c, err := newFor(Config{}, d)
	if err != nil {
		return explore.Instance{}, err
	}
	return explore.Instance{Loop: c.Loop, Memory: map[string]explore.Memory{
		"writes":   explore.MemoryOf(c.writes.State, c.writes.SetState),
		"warnings": explore.MemoryOf(c.warningsState, c.setWarningsState),
	}}, nil
}

func (c *Controller) warningsState() map[string]types.UID {
	return snapshot.Save(c.warnings.State(), snapshot.Same)
}

func (c *Controller) setWarningsState(state map[string]types.UID) {
	c.warnings.SetState(snapshot.Restore(state, snapshot.Same))
}

// movesOfKubelet are those of a kubelet that starts Pods, and removes those that are being
// deleted.
func movesOfKubelet(w explore.World) (moves []explore.Move) {
	for _, pod := range explore.All[corev1.Pod](w, Resource.GroupResource()) {
		switch {
		case pod.DeletionTimestamp != nil:
			moves = append(moves, explore.Move{Did: "removes Pod " + pod.Name, After: w.Delete(Resource.GroupResource(), pod.Namespace, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})})
		case pod.Name == "asking" && pod.Status.Phase != corev1.PodRunning:
			moves = append(moves, explore.Move{Did: "starts Pod " + pod.Name, After: explore.Update(w, "kubelet", Resource.GroupResource(), pod.Namespace, pod.Name, "status", func(pod *corev1.Pod) {
				pod.Status.Phase = corev1.PodRunning
			})})
		}
	}
	return moves
}

// editsOfPeople are a few changes that people make.
func editsOfPeople(w explore.World) (moves []explore.Move) {
	edit := func(name, did string, change func(*corev1.Pod)) {
		if w.Object(Resource.GroupResource(), "shop", name) != nil {
			moves = append(moves, explore.Move{Did: did, After: explore.Update(w, "people", Resource.GroupResource(), "shop", name, "", change)})
		}
	}
	edit("quiet", "asks for a timestamp", func(pod *corev1.Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, AnnotationAddTime, "") })
	edit("asking", "asks for none", func(pod *corev1.Pod) { delete(pod.Annotations, AnnotationAddTime) })
	edit("asking", "sets a timestamp", func(pod *corev1.Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, AnnotationTimestamp, "yesterday") })
	edit("asking", "removes the timestamp", func(pod *corev1.Pod) { delete(pod.Annotations, AnnotationTimestamp) })
	if w.Object(Resource.GroupResource(), "shop", "asking") == nil {
		return append(moves, explore.Move{Did: "creates the Pod again", After: w.Create(exploredPod("asking", AnnotationAddTime))})
	}
	return append(moves,
		explore.Move{Did: "deletes the Pod", After: w.Delete(Resource.GroupResource(), "shop", "asking", metav1.DeleteOptions{})},
		explore.Move{Did: "deletes the Pod by force", After: w.Delete(Resource.GroupResource(), "shop", "asking", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})},
	)
}

// checkStored looks at each change of what is stored: the controller must give a timestamp
// to a Pod that should get one, and must do nothing else.
func checkStored(c explore.Change) error {
	if c.Verb == "" {
		return nil
	}
	before := explore.Get[corev1.Pod](c.Before, c.Key.Resource, c.Key.Namespace, c.Key.Name)
	after := explore.Get[corev1.Pod](c.After, c.Key.Resource, c.Key.Namespace, c.Key.Name)
	if before == nil || after == nil {
		return errors.New("the controller creates or deletes a Pod")
	}
	if !needsTimestamp(before) {
		return fmt.Errorf("the controller changes Pod %s, which needs no timestamp", before.Name)
	}
	want := before.DeepCopy()
	want.Annotations[AnnotationTimestamp] = after.Annotations[AnnotationTimestamp]
	want.ResourceVersion, want.ManagedFields = after.ResourceVersion, after.ManagedFields
	if needsTimestamp(after) || !equality.Semantic.DeepEqual(want, after) {
		return fmt.Errorf("the controller changes more of Pod %s than its timestamp: %s", before.Name, cmp.Diff(before, after))
	}
	return nil
}

// needsTimestamp reports whether a Pod should get a timestamp.
func needsTimestamp(pod *corev1.Pod) bool {
	_, isAsking := pod.Annotations[AnnotationAddTime]
	_, isStamped := pod.Annotations[AnnotationTimestamp]
	return isAsking && !isStamped && pod.DeletionTimestamp == nil && pod.Name != "static"
}

// checkRest looks at a state in which nothing happens any more.
func checkRest(w explore.World) error {
	for _, pod := range explore.All[corev1.Pod](w, Resource.GroupResource()) {
		if needsTimestamp(pod) {
			return fmt.Errorf("Pod %s has no timestamp", pod.Name)
		}
	}
	return nil
}

var exploring = explore.AddFlags(flag.CommandLine)

// TestExplore is complete within these bounds. -explore.bounds goes further.
func TestExplore(t *testing.T) {
	exploring.Test(t, "explored()", explored(),
		"losses=1,crashes=1",
		"refusals=1",
		"relists=1,delays=1",
		"processes=2,crashes=1",
		"edits=2",
		"losses=1,edits=1",
	)
}
