package icecream

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

func orphaned(d *appsv1.Deployment) { d.OwnerReferences = nil }

func scaled(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](9) }

// ownedBy gives the Deployment another controller of the same kind.
func ownedBy(uid types.UID) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.OwnerReferences[0].UID = uid }
}

// What the stories in testdata/decisions do not tell.
func TestDecide(t *testing.T) {
	const (
		nothing    = "nothing to do"
		isForeign  = "blocked by ErrResourceExists"
		waitForEnd = "wait for DeploymentTerminating"
	)
	// with returns the Icecream's Deployment of that name ("" for its own), as edited.
	with := func(name string, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
		return made(t, newIcecream(calls(name)), edits...)
	}
	for name, test := range map[string]struct {
		ice         *v1alpha1.Icecream
		deployments []*appsv1.Deployment
		want        string
	}{
		"another Icecream's Deployment": {newIcecream(), []*appsv1.Deployment{with("", ownedBy("another"))}, isForeign},
		"one whose owner has another kind and the same UID": {newIcecream(), []*appsv1.Deployment{with("", func(d *appsv1.Deployment) {
			d.OwnerReferences[0].Kind = "Parlor"
		})}, isForeign},
		"one whose owner is of another version": {newIcecream(), []*appsv1.Deployment{with("", func(d *appsv1.Deployment) {
			d.OwnerReferences[0].APIVersion = "controller.nicoleh.io/v1"
		})}, "update sundae: metadata.ownerReferences[sundae].apiVersion"},
		"an owner is not the controller": {newIcecream(), []*appsv1.Deployment{with("", func(d *appsv1.Deployment) {
			d.OwnerReferences[0].Controller = nil
			d.OwnerReferences = append(d.OwnerReferences, metav1.OwnerReference{UID: "another", Controller: ptr.To(true)})
		})}, isForeign},
		"an orphan with another selector": {newIcecream(), []*appsv1.Deployment{with("", orphaned, func(d *appsv1.Deployment) {
			d.Spec.Selector.MatchLabels["flavor"] = "vanilla"
		})}, isForeign},
		"an orphan with an expression in its selector": {newIcecream(), []*appsv1.Deployment{with("", orphaned, func(d *appsv1.Deployment) {
			d.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "flavor", Operator: metav1.LabelSelectorOpExists}}
		})}, isForeign},
		"an orphan that says somebody else manages it": {newIcecream(), []*appsv1.Deployment{with("", orphaned, func(d *appsv1.Deployment) {
			d.Labels[labelManagedBy] = "Helm"
		})}, isForeign},
		"an orphan that is being deleted": {newIcecream(), []*appsv1.Deployment{with("", orphaned, beingDeleted)}, waitForEnd},
		"an orphan of an Icecream of the same name": {
			newIcecream(hasUID("next")),
			[]*appsv1.Deployment{with("", orphaned)},
			"recheck what is live; update sundae: metadata.ownerReferences",
		},

		"a rename, while the new one is not available": {newIcecream(calls("cone")), []*appsv1.Deployment{with(""), with("cone", rollingOut)}, nothing},
		"a rename, while the new one is being deleted": {newIcecream(calls("cone")), []*appsv1.Deployment{with(""), with("cone", beingDeleted)}, waitForEnd},
		"a rename, while the new one has drifted":      {newIcecream(calls("cone")), []*appsv1.Deployment{with(""), with("cone", scaled)}, "update cone: spec.replicas"},
		"a rename that is stuck, and a new size":       {newIcecream(calls("cone"), scaledTo(5)), []*appsv1.Deployment{with(""), made(t, newIcecream(calls("cone"), scaledTo(5)), rollingOut)}, "update sundae: spec.replicas"},
		"a rename to an occupied name, and a new size": {newIcecream(calls("cone"), scaledTo(5)), []*appsv1.Deployment{with(""), with("cone", ownedBy("another"))}, "update sundae: spec.replicas"},
		"a rename, while the old one is being deleted": {newIcecream(calls("cone")), []*appsv1.Deployment{with("", beingDeleted), with("cone")}, nothing},
		"a rename to an occupied name":                 {newIcecream(calls("cone")), []*appsv1.Deployment{with(""), with("cone", ownedBy("another"))}, isForeign},
		"two renames":                                  {newIcecream(calls("cup")), []*appsv1.Deployment{with(""), with("cone"), with("cup")}, "recheck what is live; delete cone; delete sundae"},

		"being deleted, without a Deployment":  {newIcecream(beingDeleted), nil, nothing},
		"being deleted, with drift":            {newIcecream(beingDeleted), []*appsv1.Deployment{with("", scaled), with("cone")}, nothing},
		"being deleted, with an orphan":        {newIcecream(beingDeleted), []*appsv1.Deployment{with("", orphaned)}, nothing},
		"our own is being deleted, with drift": {newIcecream(), []*appsv1.Deployment{with("", beingDeleted, scaled)}, waitForEnd},
	} {
		t.Run(name, func(t *testing.T) {
			if got := inWordsOf(decide(t, seeing(test.ice, test.deployments...))); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// What others have added to a Deployment comes along when it is renamed. Where an admission
// policy does not allow that, an event says so.
func TestRenameKeepsWhatOthersAdded(t *testing.T) {
	added := func(d *appsv1.Deployment) {
		pod := &d.Spec.Template.Spec
		pod.Tolerations = []corev1.Toleration{{Key: "dairy", Operator: corev1.TolerationOpExists}}
		pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
		pod.Containers[0].Env = []corev1.EnvVar{{Name: "FLAVOR", Value: "mint"}}
		pod.Containers = append([]corev1.Container{{Name: "0-sidecar", Image: "sidecar:1"}}, pod.Containers...)
		d.Spec.Template.Annotations["example.com/team"] = "dessert"
		d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
		d.Spec.Paused = true
		d.Annotations = map[string]string{"example.com/owner": "ops", "deployment.kubernetes.io/revision": "7"}
	}
	old := made(t, newIcecream(), added)
	renamed := newIcecream(calls("cone"), scaledTo(5), func(ice *v1alpha1.Icecream) { ice.Spec.Image = "registry.example/vanilla:2" })
	o := seeing(renamed, old)
	plan := decide(t, o)

	want := newDeployment(renamed)
	want.Spec.Template.Spec.Containers[0].TerminationMessagePath, want.Spec.Template.Spec.Containers[0].TerminationMessagePolicy = old.Spec.Template.Spec.Containers[1].TerminationMessagePath, old.Spec.Template.Spec.Containers[1].TerminationMessagePolicy
	if plan.Want == nil || plan.Live != nil {
		t.Fatalf("decided: %s", inWordsOf(plan))
	}
	if diff := cmp.Diff(newDeployment(renamed).Spec, plan.Bare.Spec); diff != "" {
		t.Errorf("without what others added (-want +got):\n%s", diff)
	}
	added(want)
	want.Spec.Paused = false
	delete(want.Annotations, "deployment.kubernetes.io/revision")
	if diff := cmp.Diff(want.ObjectMeta, plan.Bare.ObjectMeta); diff != "" {
		t.Errorf("the metadata without what others added to the spec (-want +got):\n%s", diff)
	}
	for _, d := range differences(plan.Want, want) {
		if d.Want != nil { // else, a default of the API server
			t.Errorf("the new Deployment: %s", d)
		}
	}

	stored := made(t, renamed)
	_, event := o.With(plan, Result{Stored: stored, IsBare: true})
	if want := `Warning AdditionsLost: Created Deployment "cone" without what was added to Deployment "sundae", as an admission policy demands; it will be lost when the latter is deleted: ` +
		`strategy.type, template.metadata.annotations.example.com/team, template.spec.containers[0-sidecar], template.spec.containers[icecream].env, template.spec.imagePullSecrets, template.spec.tolerations`; inWords(event) != want {
		t.Errorf("event: %s\nwant:  %s", inWords(event), want)
	}
}

// A change of the Deployment's annotations makes a new generation, which changes nothing
// about its Pods. So it changes nothing in the status.
func TestAnnotationOfTheDeployment(t *testing.T) {
	d := made(t, newIcecream())
	o := seeing(newIcecream(), d)
	settled := report(t, o)
	o.Memory, o.Icecream.Status = settled.Memory, settled.Status
	for name, test := range map[string]struct {
		edit   func(*appsv1.Deployment)
		status string
	}{
		"annotated":                         {func(d *appsv1.Deployment) { d.Generation++; d.Annotations = map[string]string{"a": "b"} }, "Ready: Available: 3 of 3 Pods available"},
		"annotated, and observed":           {func(d *appsv1.Deployment) { d.Generation++; d.Status.ObservedGeneration++ }, "Ready: Available: 3 of 3 Pods available"},
		"edited":                            {func(d *appsv1.Deployment) { d.Generation++; d.Spec.MinReadySeconds = 5 }, "Reconciling: Progressing: 3 of 3 Pods available, 3 made from the current spec"},
		"edited twice, back to what it was": {func(d *appsv1.Deployment) { d.Generation += 2 }, "Reconciling: Progressing: 3 of 3 Pods available, 3 made from the current spec"},
		"made again":                        {func(d *appsv1.Deployment) { d.Generation++; d.UID = "another" }, "Reconciling: Progressing: 3 of 3 Pods available, 3 made from the current spec"},
	} {
		t.Run(name, func(t *testing.T) {
			o := o
			o.Named = d.DeepCopy()
			test.edit(o.Named)
			o.Owned = []*appsv1.Deployment{o.Named}
			s := report(t, o).Status
			if got := verdictOf(s) + ": " + messageOf(s); got != test.status {
				t.Errorf("got %q, want %q", got, test.status)
			}
		})
	}
}

// A patch is for the very object that was looked at. An adoption depends on more than the
// UID, so it is for the very version.
func TestPreconditionsOfPatches(t *testing.T) {
	for name, test := range map[string]struct {
		edit      func(*appsv1.Deployment)
		isVersion bool
	}{"a repair": {scaled, false}, "an adoption": {orphaned, true}} {
		t.Run(name, func(t *testing.T) {
			d := made(t, newIcecream(), test.edit)
			var body metav1.PartialObjectMetadata
			if err := json.Unmarshal(decide(t, seeing(newIcecream(), d)).Patch, &body); err != nil {
				t.Fatal(err)
			}
			if body.UID != d.UID || (body.ResourceVersion == d.ResourceVersion) != test.isVersion {
				t.Errorf("UID %q and version %q, of %q and %q", body.UID, body.ResourceVersion, d.UID, d.ResourceVersion)
			}
		})
	}
}

// An Icecream costs no more than any other, whatever number of digits a quantity has that was
// stored under another schema, and whatever the schema admits. Without the limit, the first
// takes half a minute.
func TestDigitsOfQuantities(t *testing.T) {
	longest := strings.Repeat("9", 20) + "." + strings.Repeat("9", 12)
	for name, test := range map[string]struct {
		quantity resource.Quantity
		want     string
	}{
		"stored before":                 {resource.MustParse("1" + strings.Repeat("0", 200_000)), "Stalled: InvalidSpec: spec.resources.requests.memory has too many digits"},
		"the longest that are admitted": {resource.MustParse(longest + "Ei"), "Reconciling: Progressing: The Deployment is being created"},
		"with the largest exponent":     {resource.MustParse(longest + "e99"), "Reconciling: Progressing: The Deployment is being created"},
		"with the smallest exponent":    {resource.MustParse(longest + "e-99"), "Reconciling: Progressing: The Deployment is being created"},
	} {
		t.Run(name, func(t *testing.T) {
			ice := newIcecream(func(ice *v1alpha1.Icecream) {
				ice.Spec.Resources.Requests = corev1.ResourceList{"memory": test.quantity}
			})
			start := time.Now()
			for _, o := range []Observed{seeing(ice), seeing(ice, made(t, newIcecream(), scaled))} {
				plan := decide(t, o)
				s := Status(o, plan).Status
				if _, err := json.Marshal([]any{plan.Want, plan.Patch}); err != nil {
					t.Fatal(err)
				}
				if o.Named == nil && verdictOf(s)+": "+messageOf(s) != test.want {
					t.Errorf("got %s: %s, want %s", verdictOf(s), messageOf(s), test.want)
				}
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// Nothing is written for an Icecream whose spec cannot be decoded, whatever there is. Its
// status says why, and keeps up with what runs.
func TestUndecodable(t *testing.T) {
	ice := newIcecream(func(ice *v1alpha1.Icecream) {
		ice.Spec, ice.Status.DeploymentName = v1alpha1.IcecreamSpec{}, "cone"
	})
	for name, deployments := range map[string][]*appsv1.Deployment{
		"no Deployment":  nil,
		"its Deployment": {made(t, newIcecream(calls("cone")))},
		"drift":          {made(t, newIcecream(calls("cone")), scaled)},
		"an orphan":      {made(t, newIcecream(calls("cone")), orphaned)},
		"two":            {made(t, newIcecream()), made(t, newIcecream(calls("cone")))},
	} {
		t.Run(name, func(t *testing.T) {
			o := seeing(ice).WithUndecodable("spec.image: that is no image")
			seen := seeing(o.Icecream, deployments...) // of the name in use
			o.Named, o.Owned, o.Pods = seen.Named, seen.Owned, seen.Pods
			plan := decide(t, o)
			if plan.IsWrite() {
				t.Errorf("written: %s", inWordsOf(plan))
			}
			s := Status(o, plan).Status
			if got := verdictOf(s) + ": " + messageOf(s); got != "Stalled: InvalidSpec: The spec cannot be decoded: spec.image: that is no image" {
				t.Errorf("status: %s", got)
			}
			if len(deployments) > 0 && s.NodeCount != 2 || len(o.Owned) > 0 && (s.DeploymentName != "cone" || s.AvailableReplicas != 3) {
				t.Errorf("the status has lost sight of the Deployment: %+v", s)
			}
		})
	}
	deleted := seeing(newIcecream(beingDeleted)).WithUndecodable("spec.image: that is no image")
	if got := inWordsOf(decide(t, deleted)); got != "nothing to do" {
		t.Errorf("while it is being deleted: %s", got)
	}
}
