package icecream

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

func TestDecide(t *testing.T) {
	ice := newIcecream()
	older := newIcecream(func(ice *v1alpha1.Icecream) { ice.Name, ice.Spec.DeploymentName = "cone", "sundae" })
	ownedBy := func(edit func(*metav1.OwnerReference)) *appsv1.Deployment {
		return made(t, ice, func(d *appsv1.Deployment) { edit(&d.OwnerReferences[0]) })
	}
	const exists = `Reconciling: ErrResourceExists: Deployment "sundae" already exists and is `
	const notOwned = exists + "not owned by this Icecream; delete it, or use another spec.deploymentName"
	anotherVersion := func(r *metav1.OwnerReference) { r.APIVersion = v1alpha1.GroupName + "/v1" }
	selectsOthers := func(d *appsv1.Deployment) { d.Spec.Selector.MatchLabels = map[string]string{LabelIcecream: "cone"} }
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
			Observed{Live: ownedBy(func(r *metav1.OwnerReference) { r.UID = "former" })},
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
	} {
		t.Run(name, func(t *testing.T) {
			test.o.Now, test.o.Icecream = now, ice
			if got := decided(test.o); got != test.want {
				t.Errorf("got %s\nwant %s", got, test.want)
			}
		})
	}
}

// What was refused or reverted waits. What somebody asks for anew does not.
func TestWaits(t *testing.T) {
	ice := newIcecream()
	for name, test := range map[string]struct {
		last pace.Attempt
		want time.Duration
	}{
		"a new process":            {pace.Attempt{}, 0},
		"it was written just now":  {attempt(ice, nil, 1, 0), time.Second},
		"it was refused before":    {attempt(ice, forbidden("quota"), 4, time.Minute), 8 * time.Second},
		"another edit was refused": {attempt(newIcecream(withImage("mud")), forbidden("quota"), 4, time.Minute), 0},
	} {
		if got := Decide(Observed{Now: now, Icecream: ice, Live: made(t, ice, scaled), Last: test.last}).Wait; got != test.want {
			t.Errorf("%s: it waits %s, want %s", name, got, test.want)
		}
	}
}

// What admission makes of a write stays, also for a new process, until the Icecream or somebody else changes that.
func TestWhatAdmissionMakesStays(t *testing.T) {
	pinned := runs("registry.example/vanilla:1@sha256:0a")
	label := func(d *appsv1.Deployment) { d.Labels[labelName] = "sorbet" }
	all := func(d *appsv1.Deployment) { pinned(d); label(d); scaled(d) }
	for name, test := range map[string]struct {
		edit func(*v1alpha1.Icecream)
		then func(*appsv1.Deployment)
		want string
	}{
		"nothing else happens":             {want: "nothing"},
		"it is scaled":                     {edit: scaledTo(5), want: "replicas"},
		"it is scaled to what it is":       {edit: scaledTo(2), want: "nothing"},
		"it asks for another image":        {edit: withImage("mint"), want: "everything"},
		"an edit names the digest":         {edit: withImage("registry.example/vanilla:1@sha256:0a"), want: "everything"},
		"somebody sets another image":      {then: runs("mud"), want: "everything"},
		"somebody scales":                  {then: func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](1) }, want: "replicas"},
		"somebody removes a label":         {then: func(d *appsv1.Deployment) { delete(d.Labels, labelName) }, want: "everything"},
		"somebody removes our annotation":  {then: func(d *appsv1.Deployment) { delete(d.Annotations, patch.AnnotationAsked) }, want: "everything, or replicas"},
		"somebody removes the owner":       {then: orphaned, want: "everything"},
		"somebody changes an unknown name": {then: func(d *appsv1.Deployment) { d.Labels["team"] = "parlor" }, want: "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			mutating := apiserver.New(apiserver.Options{Mutate: func(a apiserver.Admission) {
				if a.Verb == "create" {
					all(a.Object.(*appsv1.Deployment))
				}
			}}, apiserver.Deployments())
			store := appliedTo(t, mutating, apiserver.Store{}, newIcecream())
			if test.then != nil {
				store = edited(t, store, test.then)
			}
			ice := newIcecream()
			if test.edit != nil {
				test.edit(ice)
			}
			if got := decided(Observed{Now: now, Icecream: ice, Live: stripped(onlyOne(t, store))}); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// A spec that cannot be written does not keep the replicas from arriving, but nothing that was stopped starts, and
// nobody else's Deployment is scaled.
func TestScaled(t *testing.T) {
	broken := newIcecream(scaledTo(5), withTemplate(`{"spec": {"nodeNames": []}}`))
	edited := newIcecream(scaledTo(5), withImage("mint"))
	for name, test := range map[string]struct {
		live *appsv1.Deployment
		want bool
	}{
		"it runs":                    {made(t, newIcecream()), true},
		"it has the replicas":        {made(t, newIcecream(scaledTo(5))), false},
		"it was stopped":             {made(t, newIcecream(scaledTo(0))), false},
		"it is an orphan":            {made(t, newIcecream(), orphaned), false},
		"there is no Deployment":     {nil, false},
		"it is of a former Icecream": {made(t, newIcecream(), func(d *appsv1.Deployment) { d.OwnerReferences[0].UID = "former" }), false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, ice := range []*v1alpha1.Icecream{broken, edited} {
				if got := Decide(Observed{Now: now, Icecream: ice, Live: test.live}).Scale; (got != nil) != test.want {
					t.Errorf("scaled: %t", got != nil)
				}
			}
		})
	}
	if got := decided(Observed{Now: now, Icecream: newIcecream(), Live: made(t, newIcecream(scaledTo(0)))}); got != "replicas" {
		t.Errorf("of one that was stopped and is started, got %s", got)
	}
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
