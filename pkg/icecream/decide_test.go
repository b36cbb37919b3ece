package icecream

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

func TestDecide(t *testing.T) {
	ice := newIcecream()
	older := newIcecream(func(ice *v1alpha1.Icecream) { ice.Name, ice.Spec.DeploymentName = "cone", "sundae" })
	edited := newIcecream(scaledTo(5), withImage("mint"))
	broken := newIcecream(scaledTo(5), withTemplate(`{"spec": {"nodeNames": []}}`))
	ownedBy := func(edit func(*metav1.OwnerReference)) *appsv1.Deployment {
		return made(t, ice, func(d *appsv1.Deployment) { edit(&d.OwnerReferences[0]) })
	}
	const exists = `Reconciling: ErrResourceExists: Deployment "sundae" already exists and is `
	const notOwned = exists + "not owned by this Icecream; delete it, or use another spec.deploymentName"
	anotherVersion := func(r *metav1.OwnerReference) { r.APIVersion = v1alpha1.GroupName + "/v1" }
	selectsOthers := func(d *appsv1.Deployment) { d.Spec.Selector.MatchLabels = map[string]string{LabelIcecream: "cone"} }
	former := func(r *metav1.OwnerReference) { r.UID = "former" }
	const unknown = `Stalled: InvalidSpec: spec.template: unknown field "spec.nodeNames"`
	isHeld := func(d *appsv1.Deployment) { beingDeleted(d); d.Finalizers = []string{"example.com/a", "example.com/b"} }
	for name, test := range map[string]struct {
		o    Observed
		want string
	}{
		"a new Icecream":               {Observed{}, "everything"},
		"its Deployment is as it asks": {Observed{Live: made(t, ice)}, "nothing"},
		"its Deployment was scaled":    {Observed{Live: made(t, ice, scaled)}, "replicas"},
		"an orphan":                    {Observed{Live: made(t, ice, orphaned)}, "everything"},
		"an owner of another version":  {Observed{Live: ownedBy(anotherVersion)}, "everything"},
		"an older Icecream asks for it": {
			Observed{Older: older}, `Reconciling: ErrResourceExists: Icecream "cone", which is older, ` +
				`asks for the same Deployment "sundae"; use another spec.deploymentName`,
		},
		"an older one asks for what it has": {
			Observed{Older: older, Live: made(t, ice)}, "nothing",
		},
		"a Deployment of a former Icecream": {
			Observed{Live: ownedBy(former)},
			`Reconciling: DeploymentTerminating: Waiting for the garbage collector to delete Deployment "sundae" of a former Icecream`,
		},
		"another Icecream's Deployment": {
			Observed{Live: ownedBy(func(r *metav1.OwnerReference) { r.UID, r.Name = "cone", "cone" })},
			exists + `owned by Icecream "cone"; use another spec.deploymentName`,
		},
		"an Icecream's of another group": {
			Observed{Live: ownedBy(func(r *metav1.OwnerReference) { r.APIVersion = "example.com/v1" })},
			exists + `owned by Icecream "sundae"; use another spec.deploymentName`,
		},
		"nobody's, and not made for an Icecream": {
			Observed{Live: made(t, ice, orphaned, func(d *appsv1.Deployment) { d.Labels[labelManagedBy] = "Helm" })},
			notOwned,
		},
		"nobody's, with the Pods of another": {
			Observed{Live: made(t, ice, orphaned, selectsOthers)},
			notOwned,
		},
		"its Deployment is being deleted": {
			Observed{Live: made(t, ice, beingDeleted[*appsv1.Deployment], scaled)},
			`Reconciling: DeploymentTerminating: Waiting for Deployment "sundae" to be deleted`,
		},
		"finalizers hold a Deployment": {
			Observed{Live: made(t, ice, isHeld)},
			`Reconciling: DeploymentTerminating: Waiting for Deployment "sundae" to be deleted (finalizers: example.com/a, example.com/b)`,
		},
		"the spec cannot be decoded": {
			Observed{Undecodable: "spec.image: that is no image", Live: made(t, ice, scaled)},
			"Stalled: InvalidSpec: The spec cannot be decoded: spec.image: that is no image",
		},

		// A spec that cannot be written, or is refused, does not keep the replicas from arriving. But nothing that was
		// stopped starts, and nobody else's Deployment is scaled.
		"an edit":                               {Observed{Icecream: edited, Live: made(t, ice)}, "everything, or replicas"},
		"an edit of one that was stopped":       {Observed{Icecream: edited, Live: made(t, newIcecream(scaledTo(0)))}, "everything"},
		"an edit of an orphan":                  {Observed{Icecream: edited, Live: made(t, ice, orphaned)}, "everything"},
		"it was stopped, and is scaled":         {Observed{Live: made(t, newIcecream(scaledTo(0)))}, "replicas"},
		"a broken template":                     {Observed{Icecream: broken, Live: made(t, ice)}, "replicas; " + unknown},
		"a broken template, with its replicas":  {Observed{Icecream: broken, Live: made(t, newIcecream(scaledTo(5)))}, unknown},
		"a broken template, and it was stopped": {Observed{Icecream: broken, Live: made(t, newIcecream(scaledTo(0)))}, unknown},
		"a broken template, and an orphan":      {Observed{Icecream: broken, Live: made(t, ice, orphaned)}, unknown},
		"a broken template, and no Deployment":  {Observed{Icecream: broken}, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			test.o.Now, test.o.Icecream = now, cmp.Or(test.o.Icecream, ice)
			if got := decided(test.o); got != test.want {
				t.Errorf("got %s\nwant %s", got, test.want)
			}
		})
	}
}

// decided says what is to be written, or why nothing is.
func decided(o Observed) string {
	plan := Decide(o)
	var what []string
	if plan.Apply != nil {
		what = append(what, "everything")
	}
	if plan.Scale != nil {
		what = append(what, "replicas")
	}
	words := strings.Join(what, ", or ")
	if plan.Held.Reason != "" {
		words = strings.TrimPrefix(fmt.Sprintf("%s; %s: %s: %s", words, plan.Held.State, plan.Held.Reason, plan.Held.Message), "; ")
	}
	return cmp.Or(words, "nothing")
}

// An Icecream costs no more than any other, whatever number of digits or zeros a quantity has, and what the
// schema admits is no number too large. Without the limit, the first takes half a minute.
func TestDigitsOfQuantities(t *testing.T) {
	longest := strings.Repeat("9", 20) + "." + strings.Repeat("9", 12)
	const tooLarge = "Stalled: InvalidSpec: spec.resources.requests.memory is too large a number"
	for name, test := range map[string]struct {
		quantity resource.Quantity
		want     string
	}{
		"stored before, with many digits":     {resource.MustParse("1" + strings.Repeat("0", 200_000)), tooLarge},
		"stored before, with a long exponent": {resource.MustParse("1e30000000"), tooLarge},
		"the longest that are admitted":       {resource.MustParse(longest + "Ei"), "everything"},
		"with the largest exponent":           {resource.MustParse(longest + "e99"), "everything"},
		"with the smallest exponent":          {resource.MustParse(longest + "e-99"), "everything"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			requests := corev1.ResourceList{"memory": test.quantity}
			ice := newIcecream(func(ice *v1alpha1.Icecream) { ice.Spec.Resources.Requests = requests })
			if got := decided(Observed{Now: now, Icecream: ice}); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// Of two Icecreams, one is older, also of two that were created in the same second.
func TestIsOlder(t *testing.T) {
	born := func(uid types.UID, age time.Duration) *v1alpha1.Icecream {
		return &v1alpha1.Icecream{ObjectMeta: metav1.ObjectMeta{UID: uid, CreationTimestamp: metav1.NewTime(now.Add(-age))}}
	}
	for name, pair := range map[string][2]*v1alpha1.Icecream{
		"another second":  {born("b", time.Second), born("a", 0)},
		"the same second": {born("a", 0), born("b", 0)},
	} {
		if !IsOlder(pair[0], pair[1]) || IsOlder(pair[1], pair[0]) {
			t.Errorf("%s: the first is not the older one", name)
		}
	}
}
