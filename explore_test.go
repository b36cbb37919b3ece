package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kit/children"
	"nicoleh.io/k8s-controller/pkg/kit/explore"
	"nicoleh.io/k8s-controller/pkg/kit/explore/apiserver"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/snapshot"
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
	}
}

// icecreamKind is what the definition says. All that people do here is valid.
func icecreamKind() apiserver.Kind {
	manifest, err := os.ReadFile("artifacts/examples/crd-icecream.yaml")
	utilruntime.Must(err)
	kind, err := apiserver.Definition(manifest, nil)
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

// checkSent looks at each request: it must not be about what belongs to somebody else, and
// must not claim what the caches do not show.
func checkSent(s explore.Sent) error {
	if s.Verb == "get" || s.Key.Resource != icecreamsGVR.GroupResource() {
		return nil
	}
	var sent v1alpha1.Icecream
	if err := json.Unmarshal(s.Body, &sent); err != nil {
		return err
	}
	if kstatus.ReadinessOf(sent.Status.Conditions).Status != metav1.ConditionTrue {
		return nil
	}
	// What it has seen or was told since: a Deployment that has rolled out.
	for _, object := range slices.Concat(s.Caches, s.Answers) {
		if object.GetKind() != "Deployment" {
			continue
		}
		d := explore.As[appsv1.Deployment](object)
		if d.Name == sent.Status.DeploymentName && d.Status.ObservedGeneration >= d.Generation && d.Status.AvailableReplicas == *d.Spec.Replicas {
			return nil
		}
	}
	return errors.New("it says that the Icecream is Ready, but has seen no Deployment that has rolled out")
}

// checkStored looks at each change of what is stored.
func checkStored(c explore.Change) error {
	ice := explore.Get[v1alpha1.Icecream](c.After, icecreamsGVR.GroupResource(), namespace, "sundae")
	before := explore.Get[v1alpha1.Icecream](c.Before, icecreamsGVR.GroupResource(), namespace, "sundae")
	if ice != nil && before != nil && ice.UID == before.UID && ice.Status.ObservedGeneration < before.Status.ObservedGeneration {
		return fmt.Errorf("the status goes back from generation %d to %d", before.Status.ObservedGeneration, ice.Status.ObservedGeneration)
	}
	if c.Verb == "" {
		return nil
	}
	old := explore.Get[appsv1.Deployment](c.Before, c.Key.Resource, namespace, c.Key.Name)
	if c.Key.Resource == deploymentsGVR.GroupResource() && old != nil && (before == nil || !metav1.IsControlledBy(old, before)) {
		owner := metav1.GetControllerOfNoCopy(old)
		if owner == nil || owner.UID != types.UID("uid-of-sundae") {
			return fmt.Errorf("a write to somebody else's Deployment %s", old.Name)
		}
	}
	if c.Verb == "create" && c.Key.Resource == deploymentsGVR.GroupResource() {
		if ice == nil || ice.DeletionTimestamp != nil {
			return nil // The garbage collector deletes it.
		}
	}
	return nil
}

// checkRest looks at a state in which nothing happens any more.
func checkRest(w explore.World) error {
	ice := explore.Get[v1alpha1.Icecream](w, icecreamsGVR.GroupResource(), namespace, "sundae")
	all := explore.All[appsv1.Deployment](w, deploymentsGVR.GroupResource())
	if ice == nil {
		if len(all) > 0 {
			return fmt.Errorf("the Icecream is gone, but Deployment %s is not", all[0].Name)
		}
		return nil
	}
	if len(all) != 1 {
		return fmt.Errorf("there are %d Deployments, want 1", len(all))
	}
	d := all[0]
	switch name := icecream.DeploymentName(ice); {
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
	case kstatus.ReadinessOf(ice.Status.Conditions).Status != metav1.ConditionTrue:
		return fmt.Errorf("the Icecream is not Ready: %s", saying(ice))
	case ice.Status.AvailableReplicas != *ice.Spec.Replicas:
		return fmt.Errorf("the status has %d available replicas, want %d", ice.Status.AvailableReplicas, *ice.Spec.Replicas)
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
