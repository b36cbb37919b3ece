package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kit/children"
	"nicoleh.io/k8s-controller/pkg/kit/explore"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/snapshot"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// These tests look at every order in which things can happen: see pkg/kit/explore.

// explored is the controller with one Icecream, in a cluster in which Deployments roll out.
func explored() explore.Setup {
	return explore.Setup{
		Kinds:    []apiserver.Kind{icecreamKind(), apiserver.Deployments(), apiserver.Pods()},
		Objects:  []explore.Object{{Manager: "people", Object: exploredIcecream(), UID: "uid-of-sundae"}},
		Programs: []explore.Program{{Name: "the controller", Elected: true, New: newExplored}},
		World:    []explore.Actor{explore.Rollouts(true), explore.Collector()},
		Edits:    []explore.Actor{{Name: "somebody", Moves: editsOfPeople}},
		Checks:   explore.Checks{Sent: checkSent, Stored: checkStored, Rest: checkRest},
		Requests: 4, // the Deployment, and the status when it begins, while it waits, and when it is complete
		Settles:  10 * time.Second,
	}
}

//go:embed artifacts/examples/crd-icecream.yaml
var definition []byte

// icecreamKind is what the definition says. All that people do here is valid.
func icecreamKind() apiserver.Kind {
	kind, err := apiserver.Definition(definition, nil)
	utilruntime.Must(err)
	return kind
}

func exploredIcecream() *v1alpha1.Icecream {
	return &v1alpha1.Icecream{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Icecream"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sundae"},
		Spec:       v1alpha1.IcecreamSpec{Image: "registry.example/vanilla:1"},
	}
}

// newExplored makes the controller as a process does, with a way to all that it remembers.
func newExplored(d manager.Dependencies) (explore.Instance, error) {
	c, err := newFor(usual, d)
	if err != nil {
		return explore.Instance{}, err
	}
	return explore.Instance{Loop: c.Loop, Memory: map[string]explore.Memory{
		"writes":   explore.MemoryOf(c.writes.State, c.writes.SetState),
		"writing":  explore.MemoryOf(c.writing.State, c.writing.SetState),
		"memories": explore.MemoryOf(c.memoriesState, c.setMemoriesState),
		"untold":   explore.MemoryOf(c.untoldState, c.setUntoldState),
	}}, nil
}

// remembered is an icecream.Memory whose Match, which is a hash of a resource version, is
// replaced by whether it is that of what the cache has.
type remembered struct {
	icecream.Memory
	Matches bool `json:",omitempty"`
}

func (c *Controller) memoriesState() map[string]remembered {
	state := map[string]remembered{}
	c.memories.Range(func(name, kept any) bool {
		memory := icecream.MemoryOf(kept)
		match := memory.Write.Match
		memory.Write.Match = children.Match{}
		state[name.(cache.ObjectName).String()] = remembered{memory, match != children.Match{} && match == c.matchOf(name.(cache.ObjectName), memory)}
		return true
	})
	return state
}

func (c *Controller) setMemoriesState(state map[string]remembered) {
	c.memories.Clear()
	for raw, r := range state {
		name := snapshot.Name(raw)
		if r.Matches {
			r.Write.Match = c.matchOf(name, r.Memory)
		}
		c.memories.Store(name, r.Compact())
	}
}

// matchOf returns the Match of a decision that has nothing to write, whatever the Pods do.
func (c *Controller) matchOf(name cache.ObjectName, memory icecream.Memory) children.Match {
	o := icecream.Observed{Now: c.clock.Now(), StallAfter: c.config.StallAfter, Icecream: c.icecreams.Get(name.Namespace, name.Name), Memory: memory}
	if o.Icecream == nil {
		return children.Match{}
	}
	for resource := range c.children {
		var err error
		if o, err = c.observeChildren(o, resource); err != nil {
			return children.Match{}
		}
	}
	return icecream.Decide(icecream.Assess(o)).Match
}

func (c *Controller) untoldState() map[string][]children.Event {
	state := map[string][]children.Event{}
	c.untold.Range(func(name, events any) bool {
		for _, e := range events.([]children.Event) {
			e.Log = nil
			state[name.(cache.ObjectName).String()] = append(state[name.(cache.ObjectName).String()], e)
		}
		return true
	})
	return state
}

func (c *Controller) setUntoldState(state map[string][]children.Event) {
	c.untold.Clear()
	for name, events := range state {
		c.untold.Store(snapshot.Name(name), events)
	}
}

// editsOfPeople are a few changes that people make.
func editsOfPeople(w explore.World) (moves []explore.Move) {
	edit := func(did string, change func(*v1alpha1.Icecream)) {
		if w.Object(icecreamsGVR.GroupResource(), namespace, "sundae") != nil {
			moves = append(moves, explore.Move{Did: did, After: explore.Update(w, "people", icecreamsGVR.GroupResource(), namespace, "sundae", "", change)})
		}
	}
	edit("asks for chocolate", func(ice *v1alpha1.Icecream) { ice.Spec.Image = "registry.example/chocolate:1" })
	edit("renames the Deployment", func(ice *v1alpha1.Icecream) { ice.Spec.DeploymentName = "cone" })
	edit("asks for no Pods", func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To[int32](0) })
	if w.Object(icecreamsGVR.GroupResource(), namespace, "sundae") != nil {
		moves = append(moves, explore.Move{Did: "deletes the Icecream", After: w.Delete(icecreamsGVR.GroupResource(), namespace, "sundae", metav1.DeleteOptions{})})
	}
	for _, d := range explore.All[appsv1.Deployment](w, deploymentsGVR.GroupResource()) {
		moves = append(moves, explore.Move{Did: "deletes Deployment " + d.Name, After: w.Delete(deploymentsGVR.GroupResource(), namespace, d.Name, metav1.DeleteOptions{})},
			explore.Move{Did: "scales Deployment " + d.Name, After: explore.Update(w, "people", deploymentsGVR.GroupResource(), namespace, d.Name, "", func(d *appsv1.Deployment) {
				d.Spec.Replicas = ptr.To[int32](2)
			})})
	}
	return moves
}

// checkSent looks at each request: it must not claim what the caches do not show, and what
// would be wrong for an Icecream that is being deleted needs a live read before it.
func checkSent(s explore.Sent) error {
	switch {
	case s.Verb == "get":
		return nil
	case s.IsBehind:
		return errors.New("it writes while the caches do not show what it has written for the Icecream")
	case s.Key.Resource == icecreamsGVR.GroupResource():
		return checkStatusSent(s)
	}
	ice, deployments := seenBefore(s)
	if ice == nil || ice.DeletionTimestamp != nil {
		return errors.New("it writes for an Icecream that it has seen to be deleted")
	}
	live, wanted := deployments[s.Key.Name], deployments[icecream.DeploymentName(ice)]
	isRechecked := slices.ContainsFunc(s.Answers, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Icecream" && o.GetDeletionTimestamp() == nil
	})
	switch {
	case live != nil && metav1.GetControllerOfNoCopy(live) != nil && !metav1.IsControlledBy(live, ice):
		return fmt.Errorf("it writes to Deployment %s, which it has seen to be somebody else's", live.Name)
	case s.Verb == "delete" && (wanted == nil || wanted == live || !isRolledOut(wanted)):
		return errors.New("it deletes a Deployment, but has seen no other that has taken its place")
	case isRechecked:
		return nil
	case s.Verb == "delete":
		return errors.New("it deletes a Deployment without a look at whether the Icecream still exists")
	case s.Verb == "create" && ice.Status.ObservedGeneration > 0:
		return errors.New("it creates a Deployment that may have been deleted with its Icecream, without a look at whether that still exists")
	case live != nil && metav1.GetControllerOfNoCopy(live) == nil:
		return errors.New("it adopts a Deployment without a look at whether the Icecream still exists")
	}
	return nil
}

// seenBefore returns the Icecream that is synced, and the Deployments, as the caches had them
// when the sync began.
func seenBefore(s explore.Sent) (ice *v1alpha1.Icecream, deployments map[string]*appsv1.Deployment) {
	deployments = map[string]*appsv1.Deployment{}
	for _, object := range s.Caches {
		switch {
		case object.GetKind() == "Icecream" && object.GetName() == s.Syncing.Name:
			ice = explore.As[v1alpha1.Icecream](object)
		case object.GetKind() == "Deployment":
			deployments[object.GetName()] = explore.As[appsv1.Deployment](object)
		}
	}
	return ice, deployments
}

// checkStatusSent looks at each status that is sent: it must not claim more than was seen.
func checkStatusSent(s explore.Sent) error {
	var sent v1alpha1.Icecream
	if err := json.Unmarshal(s.Body, &sent); err != nil {
		return err
	}
	var used *appsv1.Deployment // as it was seen or written last
	for _, object := range slices.Concat(s.Caches, s.Answers) {
		if object.GetKind() == "Deployment" && object.GetName() == sent.Status.DeploymentName {
			used = explore.As[appsv1.Deployment](object)
		}
	}
	isReady := kstatus.ReadinessOf(sent.Status.Conditions).Status == metav1.ConditionTrue
	switch {
	case isReady && (used == nil || !isRolledOut(used)):
		return errors.New("it says that the Icecream is Ready, but has seen no Deployment that has rolled out")
	case used != nil && used.Status.ObservedGeneration < used.Generation && sent.Status.UpdatedReplicas > podsFrom(used, s.Caches):
		return errors.New("it counts Pods of another spec as updated")
	}
	return nil
}

// podsFrom returns how many of these objects are Pods of the Deployment's present template.
func podsFrom(d *appsv1.Deployment, objects []*unstructured.Unstructured) (n int32) {
	for _, object := range objects {
		if object.GetKind() == "Pod" && maps.Equal(object.GetLabels(), d.Spec.Template.Labels) && maps.Equal(object.GetAnnotations(), d.Spec.Template.Annotations) {
			n++
		}
	}
	return n
}

func isRolledOut(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration >= d.Generation && d.Status.AvailableReplicas == *d.Spec.Replicas
}

// checkStored looks at each change of what is stored: the status must not show the past again,
// and the controller must write nothing but that and the Deployments of Icecreams.
func checkStored(c explore.Change) error {
	for _, ice := range explore.All[v1alpha1.Icecream](c.After, icecreamsGVR.GroupResource()) {
		before := explore.Get[v1alpha1.Icecream](c.Before, icecreamsGVR.GroupResource(), namespace, ice.Name)
		if before != nil && ice.UID == before.UID && ice.Status.ObservedGeneration < before.Status.ObservedGeneration {
			return fmt.Errorf("the status goes back from generation %d to %d", before.Status.ObservedGeneration, ice.Status.ObservedGeneration)
		}
	}
	switch {
	case c.Verb == "" || c.Key.Resource == icecreamsGVR.GroupResource() && c.Subresource == "status":
		return nil
	case c.Key.Resource != deploymentsGVR.GroupResource() || c.Subresource != "":
		return fmt.Errorf("the controller writes %s %s", c.Key.Resource, c.Key.Name)
	}
	old := explore.Get[appsv1.Deployment](c.Before, c.Key.Resource, namespace, c.Key.Name)
	if old != nil && !isOfIcecream(old) && (c.Verb == "delete" || !isOrphan(old)) {
		return fmt.Errorf("a write to somebody else's Deployment %s", old.Name)
	}
	written := explore.Get[appsv1.Deployment](c.After, c.Key.Resource, namespace, c.Key.Name)
	switch {
	case written == nil || c.Verb == "delete":
		return nil
	case !isOfIcecream(written):
		return fmt.Errorf("the controller writes Deployment %s, which is not an Icecream's", written.Name)
	case old != nil && isOfIcecream(old) && metav1.GetControllerOfNoCopy(old).UID != metav1.GetControllerOfNoCopy(written).UID:
		return fmt.Errorf("the controller takes Deployment %s from another Icecream", written.Name)
	}
	for _, other := range explore.All[appsv1.Deployment](c.After, deploymentsGVR.GroupResource()) {
		if other.Name != written.Name && isOfIcecream(other) && maps.Equal(other.Spec.Selector.MatchLabels, written.Spec.Selector.MatchLabels) {
			return fmt.Errorf("Deployments %s and %s select the same Pods", other.Name, written.Name)
		}
	}
	return nil
}

// isOfIcecream reports whether a Deployment is controlled by an Icecream, which may be gone.
func isOfIcecream(d *appsv1.Deployment) bool {
	owner := metav1.GetControllerOfNoCopy(d)
	return owner != nil && owner.Kind == "Icecream"
}

// isOrphan reports whether a Deployment was an Icecream's, and has no owner any more.
func isOrphan(d *appsv1.Deployment) bool {
	return metav1.GetControllerOfNoCopy(d) == nil && d.Labels[icecream.LabelIcecream] != ""
}

// checkRest looks at a state in which nothing happens any more.
func checkRest(w explore.World) error {
	for _, d := range explore.All[appsv1.Deployment](w, deploymentsGVR.GroupResource()) {
		if isOfIcecream(d) && w.Object(icecreamsGVR.GroupResource(), namespace, metav1.GetControllerOfNoCopy(d).Name) == nil {
			return fmt.Errorf("the Icecream is gone, but Deployment %s is not", d.Name)
		}
	}
	for _, ice := range explore.All[v1alpha1.Icecream](w, icecreamsGVR.GroupResource()) {
		if err := checkIcecream(w, ice); err != nil {
			return err
		}
	}
	return nil
}

// deploymentsOf returns the Deployments that are controlled by an Icecream of that name.
func deploymentsOf(w explore.World, name string) []*appsv1.Deployment {
	return slices.DeleteFunc(explore.All[appsv1.Deployment](w, deploymentsGVR.GroupResource()), func(d *appsv1.Deployment) bool {
		return !isOfIcecream(d) || metav1.GetControllerOfNoCopy(d).Name != name
	})
}

// checkIcecream looks at an Icecream in such a state.
func checkIcecream(w explore.World, ice *v1alpha1.Icecream) error {
	owned := deploymentsOf(w, ice.Name)
	name := icecream.DeploymentName(ice)
	ready := kstatus.ReadinessOf(ice.Status.Conditions)
	if named := explore.Get[appsv1.Deployment](w, deploymentsGVR.GroupResource(), namespace, name); named != nil && !slices.ContainsFunc(owned, func(d *appsv1.Deployment) bool { return d.Name == name }) {
		if ready.Reason != v1alpha1.ReasonErrResourceExists {
			return fmt.Errorf("Deployment %s is somebody else's, but the status does not say so: %s", name, saying(ice))
		}
		return nil
	}
	if len(owned) != 1 {
		return fmt.Errorf("there are %d Deployments, want 1", len(owned))
	}
	switch d := owned[0]; {
	case d.Name != name:
		return fmt.Errorf("there is Deployment %s, want %s", d.Name, name)
	case !metav1.IsControlledBy(d, ice):
		return fmt.Errorf("Deployment %s is not the Icecream's", name)
	case *d.Spec.Replicas != *ice.Spec.Replicas:
		return fmt.Errorf("Deployment %s has %d replicas, want %d", name, *d.Spec.Replicas, *ice.Spec.Replicas)
	case d.Spec.Template.Spec.Containers[0].Image != ice.Spec.Image:
		return fmt.Errorf("Deployment %s has another image", name)
	case ice.Status.ObservedGeneration != ice.Generation:
		return fmt.Errorf("the status is of generation %d, want %d", ice.Status.ObservedGeneration, ice.Generation)
	case ready.Status != metav1.ConditionTrue:
		return fmt.Errorf("the Icecream is not Ready: %s", saying(ice))
	case ice.Status.AvailableReplicas != *ice.Spec.Replicas:
		return fmt.Errorf("the status has %d available replicas, want %d", ice.Status.AvailableReplicas, *ice.Spec.Replicas)
	case ice.Status.UpdatedReplicas != *ice.Spec.Replicas:
		return fmt.Errorf("the status has %d updated replicas, want %d", ice.Status.UpdatedReplicas, *ice.Spec.Replicas)
	}
	for _, pod := range explore.All[corev1.Pod](w, podsGVR.GroupResource()) {
		if !slices.Contains(ice.Status.Nodes, v1alpha1.IcecreamNode{Name: pod.Spec.NodeName, Pods: 1, ReadyPods: 1}) {
			return fmt.Errorf("the status does not have the node of Pod %s", pod.Name)
		}
	}
	return nil
}

var exploring = explore.AddFlags(flag.CommandLine)

// onlyChocolate is the same with people who ask for chocolate, and nothing else.
func onlyChocolate() explore.Setup {
	s := explored()
	s.Edits = []explore.Actor{{Name: "somebody", Moves: func(w explore.World) []explore.Move {
		return editsOfPeople(w)[:1]
	}}}
	return s
}

// moved is the same with a Pod that is moved to another node, which changes nothing but the
// status.
func moved() explore.Setup {
	s := explored()
	s.Edits = []explore.Actor{{Name: "somebody", Moves: func(w explore.World) []explore.Move {
		resource := podsGVR.GroupResource()
		pod := explore.Get[corev1.Pod](w, resource, namespace, "sundae-1")
		if pod == nil {
			return nil
		}
		next := pod.DeepCopy()
		next.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: pod.Name, Labels: pod.Labels, Annotations: pod.Annotations, OwnerReferences: pod.OwnerReferences}
		next.Spec.NodeName = "node-2"
		after := w.Delete(resource, namespace, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}).Create(explore.Object{Manager: "kube-controller-manager", Object: next})
		return []explore.Move{{Did: "moves the Pod to another node", After: explore.Update(after, "kubelet", resource, namespace, pod.Name, "status", func(p *corev1.Pod) { p.Status = pod.Status })}}
	}}}
	return s
}

// renamed is the controller with an Icecream whose former Deployment has to go, unless others
// take it first.
func renamed() explore.Setup {
	ice := exploredIcecream()
	ice.Spec.DeploymentName = "cone"
	s := amongOthers(ice, func(w explore.World) []explore.Move {
		takesBack := explore.Update(w, "people", icecreamsGVR.GroupResource(), namespace, "sundae", "", func(ice *v1alpha1.Icecream) { ice.Spec.DeploymentName = "" })
		return append(editsOfDeployment(w), explore.Move{Did: "takes the rename back", After: takesBack})
	}, deploymentFor(exploredIcecream()), deploymentFor(ice))
	s.Requests = 5 // the status, the live read, the deletion, and the status before and after that shows
	s.Checks.Stored = func(c explore.Change) error {
		if c.Verb == "delete" && len(deploymentsOf(c.After, "sundae")) == 0 {
			return errors.New("the controller deletes the only Deployment of the Icecream")
		}
		return checkStored(c)
	}
	return s
}

// meeting is the controller with two Icecreams that ask for the same Deployment. One of them may be
// deleted, and the other may ask for another one.
func meeting() explore.Setup {
	one, other := exploredIcecream(), exploredIcecream()
	one.Spec.DeploymentName = "cone"
	other.Name = "cone"
	other.Spec.Replicas = ptr.To[int32](0)
	s := amongOthers(one, func(w explore.World) (moves []explore.Move) {
		resource := icecreamsGVR.GroupResource()
		takesBack := explore.Update(w, "people", resource, namespace, "sundae", "", func(ice *v1alpha1.Icecream) { ice.Spec.DeploymentName = "" })
		moves = append(moves, explore.Move{Did: "takes the rename of sundae's Deployment back", After: takesBack})
		if w.Object(resource, namespace, "cone") != nil {
			moves = append(moves, explore.Move{Did: "deletes Icecream cone", After: w.Delete(resource, namespace, "cone", metav1.DeleteOptions{})})
		}
		return moves
	})
	s.Objects = append(s.Objects, explore.Object{Manager: "people", Object: other, UID: "uid-of-cone"})
	return s
}

// drifted is the controller with an Icecream whose Deployment has to be repaired, unless it is
// no longer that Icecream's.
func drifted() explore.Setup {
	ice := exploredIcecream()
	d := deploymentFor(ice)
	d.Spec.Template.Spec.Containers[0].Image = "registry.example/chocolate:1"
	return amongOthers(ice, func(w explore.World) []explore.Move { return append(editsOfDeployment(w), editsOfIcecream(w)...) }, d)
}

// amongOthers is the controller with an Icecream that has these Deployments. There are no
// Pods, which would make many more states of it.
func amongOthers(ice *v1alpha1.Icecream, edits func(explore.World) []explore.Move, deployments ...*appsv1.Deployment) explore.Setup {
	s := explored()
	ice.Spec.Replicas = ptr.To[int32](0)
	s.Objects = []explore.Object{{Manager: "people", Object: ice, UID: "uid-of-sundae"}}
	for _, d := range deployments {
		d.Spec.Replicas = ptr.To[int32](0)
		s.Objects = append(s.Objects, explore.Object{Manager: icecream.FieldManager, Object: d, UID: types.UID("uid-of-deployment-" + d.Name)})
	}
	s.Edits = []explore.Actor{{Name: "somebody else", Moves: edits}}
	s.Requests = 0 // It depends on what has to be done.
	return s
}

// deploymentFor returns the Deployment that the controller creates for an Icecream.
func deploymentFor(ice *v1alpha1.Icecream) *appsv1.Deployment {
	ice = ice.DeepCopy()
	ice.UID = "uid-of-sundae"
	d := icecream.Decide(icecream.Assess(icecream.Observed{Icecream: ice}))
	return d.Children[0].Want.(*appsv1.Deployment)
}

// editsOfDeployment are what others do with a Deployment.
func editsOfDeployment(w explore.World) []explore.Move {
	resource := deploymentsGVR.GroupResource()
	d := explore.Get[appsv1.Deployment](w, resource, namespace, "sundae")
	if d == nil {
		return nil
	}
	owned := func(by ...metav1.OwnerReference) explore.World {
		return explore.Update(w, "others", resource, namespace, "sundae", "", func(d *appsv1.Deployment) { d.OwnerReferences = by })
	}
	own := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sundae"},
		Spec:       d.Spec,
	}
	return []explore.Move{
		{Did: "takes the Deployment", After: owned(metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Parlor", Name: "corner", UID: "uid-of-a-parlor", Controller: ptr.To(true)})},
		{Did: "orphans the Deployment", After: owned()},
		{Did: "deletes the Deployment", After: w.Delete(resource, namespace, "sundae", metav1.DeleteOptions{})},
		{Did: "puts another Deployment in its place", After: w.Delete(resource, namespace, "sundae", metav1.DeleteOptions{}).Create(explore.Object{Manager: "others", Object: own})},
	}
}

// editsOfIcecream are those after which its Deployment must not be written any more.
func editsOfIcecream(w explore.World) []explore.Move {
	resource := icecreamsGVR.GroupResource()
	ice := explore.Get[v1alpha1.Icecream](w, resource, namespace, "sundae")
	if ice == nil || ice.DeletionTimestamp != nil {
		return nil
	}
	next := exploredIcecream()
	next.Spec = ice.Spec
	return []explore.Move{
		{Did: "deletes the Icecream, and first what it owns", After: w.Delete(resource, namespace, "sundae", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})},
		{Did: "puts another Icecream in its place", After: w.Delete(resource, namespace, "sundae", metav1.DeleteOptions{}).Create(explore.Object{Manager: "people", Object: next, UID: "uid-of-the-next-sundae"})},
	}
}

// TestExplore is complete within these bounds. `make explore` goes further.
func TestExplore(t *testing.T) {
	exploring.Test(t, "explored()", explored(),
		"losses=1,crashes=1",
		"refusals=1",
		"relists=1,delays=1",
		"processes=2,crashes=1",
		"edits=1",
	)
}

// With fewer edits, more can go wrong at the same time.
func TestExploreOneEdit(t *testing.T) {
	exploring.Test(t, "onlyChocolate()", onlyChocolate(), "edits=1,losses=1")
}

// What the status says of Pods may change though nothing else does.
func TestExploreMovedPod(t *testing.T) {
	exploring.Test(t, "moved()", moved(), "edits=1")
}

// Others may take a Deployment, or put another one in its place, just before it is deleted.
func TestExploreOldDeployment(t *testing.T) {
	exploring.Test(t, "renamed()", renamed(), "processes=1", "edits=1")
}

// While one Icecream is synced, another worker may sync the other.
func TestExploreMeeting(t *testing.T) {
	exploring.Test(t, "meeting()", meeting(), "workers=2")
}

// The same may happen just before it is repaired, and so may something to its Icecream.
func TestExploreRepair(t *testing.T) {
	exploring.Test(t, "drifted()", drifted(), "processes=1", "edits=1")
}
