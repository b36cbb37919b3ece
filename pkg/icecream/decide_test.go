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

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
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
		"a new Icecream":               {Observed{}, "create"},
		"its Deployment is as it asks": {Observed{Live: made(t, ice)}, "nothing"},
		"its Deployment was scaled":    {Observed{Live: made(t, ice, scaled)}, "replicas"},
		"an orphan":                    {Observed{Live: made(t, ice, orphaned)}, "owner"},
		"an owner of another version":  {Observed{Live: ownedBy(anotherVersion)}, "owner"},
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

// Policies put a digest behind a tag. It stays as long as the Icecream asks for the same tag.
func TestDigestsStay(t *testing.T) {
	const tag, pinned, other = "registry.example/vanilla:1", "registry.example/vanilla:1@sha256:0a", "registry.example/mint:1"
	for name, test := range map[string]struct {
		asked, live string // what the Deployment was written for, and what it runs now
		ice         *v1alpha1.Icecream
		want, image string // what is written, and the image that there is then
	}{
		"a policy has pinned the tag":    {tag, pinned, newIcecream(), "nothing", pinned},
		"it is scaled then":              {tag, pinned, newIcecream(scaledTo(5)), "replicas", pinned},
		"an edit takes the digest away":  {pinned, pinned, newIcecream(), "annotations, template", tag},
		"an edit names a digest":         {tag, tag, newIcecream(withImage(pinned)), "annotations, template", pinned},
		"an edit names another tag":      {tag, pinned, newIcecream(withImage(other)), "annotations, template", other},
		"the digest is of another image": {tag, other + "@sha256:0a", newIcecream(), "template", tag},
		"the digest is of a longer tag":  {tag, tag + "0@sha256:0a", newIcecream(), "template", tag},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{Now: now, Icecream: test.ice, Live: made(t, newIcecream(withImage(test.asked)), runs(test.live))}
			if got := decided(o); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			after, _ := repaired(t, test.ice, o.Live)
			if got := after.Spec.Template.Spec.Containers[0].Image; got != test.image {
				t.Errorf("it runs %s, want %s", got, test.image)
			}
		})
	}
}

// What admission makes of a write stays, until the Icecream or somebody else changes that.
func TestWhatAdmissionMakesStays(t *testing.T) {
	image, label := runs("mirror.example/vanilla:1"), func(d *appsv1.Deployment) { d.Labels[labelName] = "sorbet" }
	note := func(d *appsv1.Deployment) { d.Annotations[AnnotationAsked] = "melted" }
	for name, test := range map[string]struct {
		admission, then func(*appsv1.Deployment) // what changes the write, and the Deployment later
		edit            func(*v1alpha1.Icecream)
		after           time.Duration
		want            string
	}{
		"an image":                           {admission: image, want: "nothing"},
		"an image, for long":                 {admission: image, after: 24 * time.Hour, want: "nothing"},
		"a label":                            {admission: label, want: "nothing"},
		"our annotation":                     {admission: note, want: "nothing"},
		"fewer replicas":                     {admission: scaled, want: "nothing"},
		"fewer replicas, for almost an hour": {admission: scaled, after: time.Hour - 1, want: "nothing"},
		"fewer replicas, for an hour":        {admission: scaled, after: time.Hour, want: "replicas"},
		"the Icecream is scaled": {
			admission: func(d *appsv1.Deployment) { image(d); scaled(d) }, edit: scaledTo(5), want: "replicas",
		},
		"the Icecream asks for another image": {admission: image, edit: withImage("mint"), want: "annotations, template"},
		"somebody sets another image then":    {admission: image, then: runs("mud"), want: "template"},
		"somebody scales then":                {admission: image, then: scaled, want: "replicas"},
		"somebody removes a label then": {
			admission: image, then: func(d *appsv1.Deployment) { delete(d.Labels, labelManagedBy) }, want: "labels",
		},
		"somebody removes another label then": {
			admission: label, then: func(d *appsv1.Deployment) { delete(d.Labels, labelManagedBy) }, want: "labels",
		},
		"somebody removes the owner then":      {admission: image, then: orphaned, want: "owner"},
		"it is another Deployment of the name": {admission: image, then: func(d *appsv1.Deployment) { d.UID = "another" }, want: "template"},
	} {
		t.Run(name, func(t *testing.T) {
			ice := newIcecream()
			d := stored(t, ice, test.admission)
			o := Observed{Icecream: ice, Last: attempt(ice, nil, 1, 0), Live: stripped(d), Now: now.Add(test.after)}
			o.Last.Made, o.Last.MadeOf = Made(d, ice), wishOf(ice)
			if test.then != nil {
				test.then(o.Live)
			}
			if test.edit != nil {
				o.Icecream = newIcecream(test.edit)
			}
			if got := decided(o); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if o.Last = (pace.Attempt{}); decided(o) == "nothing" {
				t.Error("a new process does not ask for it again")
			}
		})
	}
	if got := Made(stored(t, newIcecream()), newIcecream()); got != nil {
		t.Errorf("of what is stored as it was sent, %+v is kept", got)
	}
}

// An edit that is refused does not keep the replicas from arriving, but nothing that was stopped starts, and
// nobody else's Deployment is scaled.
func TestScaled(t *testing.T) {
	ice := newIcecream(scaledTo(5), withImage("mint"))
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
			scaled := Observed{Now: now, Icecream: ice, Live: test.live}.Scaled(NewDeployment(ice))
			if (scaled != nil) != test.want {
				t.Fatalf("scaled: %t", scaled != nil)
			}
			if scaled == nil {
				return
			}
			if *scaled.Spec.Replicas != 5 || containerOf(&scaled.Spec.Template).Image != "registry.example/vanilla:1" {
				t.Errorf("%d of %s", *scaled.Spec.Replicas, containerOf(&scaled.Spec.Template).Image)
			}
		})
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
		"the longest that are admitted":       {resource.MustParse(longest + "Ei"), "create"},
		"with the largest exponent":           {resource.MustParse(longest + "e99"), "create"},
		"with the smallest exponent":          {resource.MustParse(longest + "e-99"), "create"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			requests := corev1.ResourceList{"memory": test.quantity}
			ice := newIcecream(func(ice *v1alpha1.Icecream) { ice.Spec.Resources.Requests = requests })
			if got := decided(Observed{Now: now, Icecream: ice}); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			theirs := stored(t, newIcecream()) // Nothing bounds the numbers of a Deployment.
			theirs.Spec.Template.Spec.Containers[0].Resources.Requests = requests
			o := Observed{Now: now, Icecream: newIcecream(), Live: stripped(theirs)}
			if got := decided(o); got != "template" {
				t.Errorf("of another number in the Deployment, this is written: %s", got)
			}
			if _, err := patch.IfUnchanged(o.Live, Decide(o).Want); err != nil || Made(theirs, o.Icecream) == nil {
				t.Errorf("the patch: %v", err)
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
