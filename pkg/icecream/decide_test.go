package icecream

import (
	"slices"
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
	"nicoleh.io/k8s-controller/pkg/kit/children"
)

// intent is a Decision in the words of a test.
type intent struct {
	Verdict  children.Verdict
	Reason   string
	Creates  string // a Deployment's name
	Applies  string
	Moves    bool // fields from one entry of the managedFields to another
	Deletes  []string
	Rechecks bool

	RequeueAfter time.Duration
}

func intentOf(d Decision) intent {
	in := intent{Verdict: d.Verdict, Reason: d.Reason, Rechecks: d.RecheckLive, RequeueAfter: d.RequeueAfter}
	for _, child := range d.Children {
		in.Moves = in.Moves || child.ManagedFields != nil
		if child.UID == "" {
			in.Creates += child.Want.GetName()
		} else {
			in.Applies += child.Want.GetName()
		}
	}
	for _, old := range d.Deletions {
		in.Deletes = append(in.Deletes, old.Name)
	}
	slices.Sort(in.Deletes)
	return in
}

func beingDeleted(obj metav1.Object) { obj.SetDeletionTimestamp(ptr.To(metav1.NewTime(now))) }

func reported(ice *v1alpha1.Icecream) { ice.Status.ObservedGeneration = 1 }

func orphaned(d *appsv1.Deployment) { d.OwnerReferences = nil }

// ownedBy gives the Deployment another controller.
func ownedBy(uid types.UID) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.OwnerReferences[0].UID = uid }
}

// world is what the caches show of an Icecream and these Deployments.
func world(ice *v1alpha1.Icecream, deployments ...*appsv1.Deployment) Observed {
	o := Observed{Now: now, StallAfter: patience, Icecream: ice}
	for _, d := range deployments {
		if d.Name == DeploymentName(ice) {
			o.Named = d
		}
		if metav1.IsControlledBy(d, ice) {
			o.Owned = append(o.Owned, d)
			o.Pods = append(o.Pods, podsOf(d, "node-1", "node-2")...)
		}
	}
	return o
}

// deadline is how long a rollout may take by default.
const deadline = 10 * time.Minute

func TestDecide(t *testing.T) {
	long := strings.Repeat("sprinkles-", 20)[:199] + "s"
	// with is the Icecream's Deployment of that name ("" for its own), as edited.
	with := func(name string, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
		d := made(t, newIcecream(calls(name)))
		for _, edit := range edits {
			edit(d)
		}
		return d
	}

	tests := []struct {
		name        string
		ice         *v1alpha1.Icecream // a plain one when nil
		deployments []*appsv1.Deployment
		pods        []Pod // those of the Deployments when nil
		lasts       time.Duration
		ownerIsGone bool
		want        intent
	}{{
		name: "a new Icecream gets its Deployment",
		want: intent{Verdict: children.Act, Creates: "sundae"},
	}, {
		name: "a new Icecream gets a Deployment of the name it asks for",
		ice:  newIcecream(calls("cone")),
		want: intent{Verdict: children.Act, Creates: "cone"},
	}, {
		name: "a Deployment that has gone is created again, if the Icecream has not gone too",
		ice:  newIcecream(reported),
		want: intent{Verdict: children.Act, Creates: "sundae", Rechecks: true},
	}, {
		name: "names of 200 characters work",
		ice: newIcecream(calls(long+"2"), func(ice *v1alpha1.Icecream) {
			ice.Name = long
		}),
		want: intent{Verdict: children.Act, Creates: long + "2"},
	}, {
		name:        "nothing is left to do",
		deployments: []*appsv1.Deployment{with("")},
		want:        intent{Verdict: children.Converged},
	}, {
		name:        "a rollout that is under way is nobody's business",
		deployments: []*appsv1.Deployment{with("", func(d *appsv1.Deployment) { d.Status = appsv1.DeploymentStatus{} })},
		want:        intent{Verdict: children.Converged, RequeueAfter: deadline},
	}, {
		name:        "drift in a field of ours is repaired",
		deployments: []*appsv1.Deployment{with("", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](9) })},
		want:        intent{Verdict: children.Act, Applies: "sundae", RequeueAfter: deadline},
	}, {
		name: "a changed spec is rolled out",
		ice: newIcecream(reported, func(ice *v1alpha1.Icecream) {
			ice.Spec.Image = "registry.example/chocolate:1"
		}),
		deployments: []*appsv1.Deployment{with("")},
		want:        intent{Verdict: children.Act, Applies: "sundae"},
	}, {
		name: "what others have added is left alone",
		deployments: []*appsv1.Deployment{with("", func(d *appsv1.Deployment) {
			d.Labels["team"] = "parlor"
			d.Annotations = map[string]string{"deployment.kubernetes.io/revision": "1"}
			d.Spec.Template.Annotations["sidecar"] = "injected"
			pod := &d.Spec.Template.Spec
			pod.Containers = append([]corev1.Container{{Name: "sidecar"}}, pod.Containers...)
		})},
		want: intent{Verdict: children.Converged},
	}, {
		name:        "a Deployment of somebody else is not touched",
		deployments: []*appsv1.Deployment{{ObjectMeta: metav1.ObjectMeta{Namespace: "parlor", Name: "sundae", UID: "foreign"}}},
		want:        intent{Verdict: children.Blocked, Reason: v1alpha1.ReasonErrResourceExists},
	}, {
		name:        "another Icecream's Deployment is not touched",
		deployments: []*appsv1.Deployment{with("", ownedBy("uid-of-another"))},
		want:        intent{Verdict: children.Blocked, Reason: v1alpha1.ReasonErrResourceExists},
	}, {
		name:        "the end of a Deployment whose Icecream is gone is waited for",
		ice:         newIcecream(func(ice *v1alpha1.Icecream) { ice.UID = "uid-of-the-next" }),
		deployments: []*appsv1.Deployment{with("")},
		ownerIsGone: true,
		want:        intent{Verdict: children.Wait, Reason: v1alpha1.ReasonDeploymentTerminating, RequeueAfter: time.Minute},
	}, {
		name: "the end of somebody else's Deployment that is being deleted is waited for",
		deployments: []*appsv1.Deployment{{ObjectMeta: metav1.ObjectMeta{
			Namespace: "parlor", Name: "sundae", UID: "foreign", DeletionTimestamp: ptr.To(metav1.NewTime(now)),
		}}},
		want: intent{Verdict: children.Wait, Reason: v1alpha1.ReasonDeploymentTerminating},
	}, {
		name: "being an owner is not being the controller",
		deployments: []*appsv1.Deployment{with("", func(d *appsv1.Deployment) {
			d.OwnerReferences[0].Controller = nil
			d.OwnerReferences = append(d.OwnerReferences, metav1.OwnerReference{UID: "another", Controller: ptr.To(true)})
		})},
		want: intent{Verdict: children.Blocked, Reason: v1alpha1.ReasonErrResourceExists},
	}, {
		name:        "an orphan is adopted, if the Icecream has not gone too",
		deployments: []*appsv1.Deployment{with("", orphaned)},
		want:        intent{Verdict: children.Act, Applies: "sundae", Rechecks: true},
	}, {
		name: "an orphan with another selector is foreign",
		deployments: []*appsv1.Deployment{with("", orphaned, func(d *appsv1.Deployment) {
			d.Spec.Selector.MatchLabels["flavor"] = "vanilla"
		})},
		want: intent{Verdict: children.Blocked, Reason: v1alpha1.ReasonErrResourceExists},
	}, {
		name: "an orphan with an expression in its selector is foreign",
		deployments: []*appsv1.Deployment{with("", orphaned, func(d *appsv1.Deployment) {
			d.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "flavor", Operator: metav1.LabelSelectorOpExists}}
		})},
		want: intent{Verdict: children.Blocked, Reason: v1alpha1.ReasonErrResourceExists},
	}, {
		name: "an orphan that says somebody else manages it is foreign",
		deployments: []*appsv1.Deployment{with("", orphaned, func(d *appsv1.Deployment) {
			d.Labels[labelManagedBy] = "Helm"
		})},
		want: intent{Verdict: children.Blocked, Reason: v1alpha1.ReasonErrResourceExists},
	}, {
		name:        "an orphan that is being deleted is not adopted",
		deployments: []*appsv1.Deployment{with("", orphaned, func(d *appsv1.Deployment) { beingDeleted(d) })},
		want:        intent{Verdict: children.Wait, Reason: v1alpha1.ReasonDeploymentTerminating},
	}, {
		name: "our own Deployment is being deleted: its end is waited for",
		deployments: []*appsv1.Deployment{with("", func(d *appsv1.Deployment) {
			beingDeleted(d)
			d.Spec.Replicas = ptr.To[int32](9)
		})},
		want: intent{Verdict: children.Wait, Reason: v1alpha1.ReasonDeploymentTerminating},
	}, {
		name:        "after a rename the new one comes first",
		ice:         newIcecream(calls("cone")),
		deployments: []*appsv1.Deployment{with("")},
		want:        intent{Verdict: children.Act, Creates: "cone"},
	}, {
		name:        "after a rename the old one stays until the new one is rolled out",
		ice:         newIcecream(calls("cone")),
		deployments: []*appsv1.Deployment{with(""), with("cone", func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 2 })},
		want:        intent{Verdict: children.Converged, RequeueAfter: deadline},
	}, {
		name: "after a rename the old one stays while the new one is being deleted",
		ice:  newIcecream(calls("cone")),
		deployments: []*appsv1.Deployment{
			with(""), with("cone", func(d *appsv1.Deployment) { beingDeleted(d) }),
		},
		want: intent{Verdict: children.Wait, Reason: v1alpha1.ReasonDeploymentTerminating},
	}, {
		name:        "after a rename the old one goes once the new one is rolled out",
		ice:         newIcecream(calls("cone")),
		deployments: []*appsv1.Deployment{with(""), with("cone")},
		want:        intent{Verdict: children.Act, Deletes: []string{"sundae"}, Rechecks: true, RequeueAfter: deadline},
	}, {
		name:        "the new one is set right before the old one goes",
		ice:         newIcecream(calls("cone")),
		deployments: []*appsv1.Deployment{with(""), with("cone", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0); rolledOut(d) })},
		want:        intent{Verdict: children.Act, Applies: "cone", RequeueAfter: deadline},
	}, {
		name: "an old one that is going already needs no push",
		ice:  newIcecream(calls("cone")),
		deployments: []*appsv1.Deployment{
			with("", func(d *appsv1.Deployment) { beingDeleted(d) }), with("cone"),
		},
		want: intent{Verdict: children.Converged},
	}, {
		name:        "renamed there and back, the one in between goes",
		deployments: []*appsv1.Deployment{with(""), with("cone", func(d *appsv1.Deployment) { d.Status = appsv1.DeploymentStatus{} })},
		want:        intent{Verdict: children.Act, Deletes: []string{"cone"}, Rechecks: true, RequeueAfter: deadline},
	}, {
		name:        "renamed twice, both old ones go",
		ice:         newIcecream(calls("cup")),
		deployments: []*appsv1.Deployment{with(""), with("cone"), with("cup")},
		want:        intent{Verdict: children.Act, Deletes: []string{"cone", "sundae"}, Rechecks: true, RequeueAfter: deadline},
	}, {
		name: "renamed to an occupied name, the old one stays",
		ice:  newIcecream(calls("cone")),
		deployments: []*appsv1.Deployment{
			with(""), with("cone", ownedBy("uid-of-another")),
		},
		want: intent{Verdict: children.Blocked, Reason: v1alpha1.ReasonErrResourceExists},
	}, {
		name: "an Icecream that is being deleted wants nothing",
		ice:  newIcecream(func(ice *v1alpha1.Icecream) { beingDeleted(ice) }),
		want: intent{Verdict: children.Converged},
	}, {
		name: "an Icecream that is being deleted repairs nothing",
		ice:  newIcecream(func(ice *v1alpha1.Icecream) { beingDeleted(ice) }),
		deployments: []*appsv1.Deployment{
			with("", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](9) }), with("cone"),
		},
		want: intent{Verdict: children.Converged},
	}, {
		name: "an Icecream that is being deleted adopts nothing",
		ice:  newIcecream(func(ice *v1alpha1.Icecream) { beingDeleted(ice) }),
		deployments: []*appsv1.Deployment{
			with("", orphaned),
		},
		want: intent{Verdict: children.Converged},
	}, {
		name: "no number of replicas is one replica",
		ice:  newIcecream(func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = nil }),
		deployments: []*appsv1.Deployment{
			with("", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](1) }),
		},
		want: intent{Verdict: children.Converged, RequeueAfter: deadline},
	}, {
		name: "zero replicas are zero replicas",
		ice:  newIcecream(func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To[int32](0) }),
		deployments: []*appsv1.Deployment{
			with("", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](1) }),
		},
		want: intent{Verdict: children.Act, Applies: "sundae", RequeueAfter: deadline},
	}, {
		name: "a Pod's trouble is looked at again when it is old enough to be a stall",
		deployments: []*appsv1.Deployment{
			with("", func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 2 }),
		},
		pods:  []Pod{waiting("ImagePullBackOff", time.Hour)},
		lasts: 20 * time.Second,
		want:  intent{Verdict: children.Converged, RequeueAfter: 40 * time.Second},
	}, {
		name: "a slow Pod is looked at again when the Deployment's deadline has passed for it",
		deployments: []*appsv1.Deployment{
			with("", func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 2 }),
		},
		pods:  []Pod{seen(notReady(time.Hour)), seen(notReady(30 * time.Second))},
		lasts: 30 * time.Second,
		want:  intent{Verdict: children.Converged, RequeueAfter: 570 * time.Second},
	}, {
		name: "a Pod's trouble that is a stall already is not looked at again",
		deployments: []*appsv1.Deployment{
			with("", func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 2 }),
		},
		pods:  []Pod{waiting("ImagePullBackOff", time.Second)},
		lasts: patience,
		want:  intent{Verdict: children.Converged},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.ice == nil {
				tt.ice = newIcecream()
			}
			o := world(tt.ice, tt.deployments...)
			if tt.pods != nil {
				o.Pods = tt.pods
			}
			o.OwnerIsGone = tt.ownerIsGone
			o.Memory = lasting(o, tt.lasts)
			if diff := cmp.Diff(tt.want, intentOf(decide(o))); diff != "" {
				t.Errorf("Decide (-want +got):\n%s", diff)
			}
		})
	}
}

// What is written goes to the very object that was looked at.
func TestDecisionsCarryUIDs(t *testing.T) {
	d := made(t, newIcecream())
	d.Spec.Replicas = ptr.To[int32](9)
	if got := decide(world(newIcecream(), d)).Children[0].UID; got != d.UID {
		t.Errorf("applied to UID %q, want %q", got, d.UID)
	}
	orphaned(d)
	if got := decide(world(newIcecream(), d)).Children[0].UID; got != d.UID {
		t.Errorf("adopted with UID %q, want %q", got, d.UID)
	}
}

// A field that the spec no longer asks for goes away, whichever way it came; one
// that somebody else wants as well, or alone, stays.
func TestDroppedResources(t *testing.T) {
	limits := func(names ...corev1.ResourceName) corev1.ResourceList {
		list := corev1.ResourceList{}
		for _, name := range names {
			list[name] = resource.MustParse("1")
		}
		return list
	}
	asks := func(names ...corev1.ResourceName) *v1alpha1.Icecream {
		return newIcecream(func(ice *v1alpha1.Icecream) {
			ice.Spec.Resources.Limits = limits(names...)
			ice.Spec.Resources.Requests = limits(names...)
		})
	}
	// edit has somebody add a limit of their own.
	edit := func(s *server, name corev1.ResourceName) {
		s.update("kubectl-edit", "sundae", func(d *appsv1.Deployment) {
			c := &d.Spec.Template.Spec.Containers[0]
			if c.Resources.Limits == nil {
				c.Resources.Limits = corev1.ResourceList{}
			}
			c.Resources.Limits[name] = resource.MustParse("5")
		})
	}

	tests := []struct {
		name       string
		before     func(*server)
		ice        *v1alpha1.Icecream
		wantMoves  bool
		wantLimits corev1.ResourceList
		wantWrites bool
	}{{
		name:       "dropped after the creation",
		before:     func(s *server) { s.carryOut(creates(asks("cpu", "memory"))) },
		ice:        asks("memory"),
		wantMoves:  true,
		wantLimits: limits("memory"),
		wantWrites: true,
	}, {
		name:       "all dropped after the creation",
		before:     func(s *server) { s.carryOut(creates(asks("cpu", "memory"))) },
		ice:        asks(),
		wantMoves:  true,
		wantWrites: true,
	}, {
		name: "dropped after an apply",
		before: func(s *server) {
			uid := deploymentOf(s.carryOut(creates(asks()))).UID
			s.carryOut(applies(asks("cpu", "memory"), uid))
		},
		ice:        asks("memory"),
		wantLimits: limits("memory"),
		wantWrites: true,
	}, {
		name: "dropped after a creation and an apply",
		before: func(s *server) {
			uid := deploymentOf(s.carryOut(creates(asks("cpu")))).UID
			s.carryOut(applies(asks("cpu", "memory"), uid))
		},
		ice:        asks(),
		wantMoves:  true,
		wantWrites: true,
	}, {
		name: "somebody else's limit is none of ours",
		before: func(s *server) {
			s.carryOut(creates(asks()))
			edit(s, "cpu")
		},
		ice:        asks(),
		wantLimits: corev1.ResourceList{"cpu": resource.MustParse("5")},
	}, {
		name: "somebody else's limit stays when ours goes",
		before: func(s *server) {
			s.carryOut(creates(asks("memory")))
			edit(s, "cpu")
		},
		ice:        asks(),
		wantMoves:  true,
		wantLimits: corev1.ResourceList{"cpu": resource.MustParse("5")},
		wantWrites: true,
	}, {
		name: "a limit of ours that somebody else has changed is theirs once we drop it",
		before: func(s *server) {
			s.carryOut(creates(asks("cpu")))
			edit(s, "cpu")
		},
		ice:        asks(),
		wantMoves:  true, // of the request
		wantLimits: corev1.ResourceList{"cpu": resource.MustParse("5")},
		wantWrites: true,
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t)
			tt.before(s)
			s.rollOut()

			d := decide(s.observe(tt.ice))
			if got := intentOf(d).Moves; got != tt.wantMoves {
				t.Errorf("moves managed fields: %t, want %t", got, tt.wantMoves)
			}
			if got := d.Verdict == children.Act; got != tt.wantWrites {
				t.Fatalf("Verdict %v: writes %t, want %t", d.Verdict, got, tt.wantWrites)
			}
			if d.Verdict == children.Act {
				s.carryOut(d)
			}
			got := s.deployments["sundae"].Spec.Template.Spec.Containers[0].Resources
			if diff := cmp.Diff(corev1.ResourceRequirements{Limits: tt.wantLimits, Requests: tt.ice.Spec.Resources.Requests}, got, equateEmpty); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
			if d := decide(s.observe(tt.ice)); d.Verdict != children.Converged {
				t.Errorf("afterwards: %+v, want Converged", intentOf(d))
			}
		})
	}
}

// Managed fields that cannot be read are nobody's.
func TestUnreadableManagedFields(t *testing.T) {
	d := made(t, specs["resources"])
	for i := range d.ManagedFields {
		d.ManagedFields[i].FieldsV1 = metav1.NewFieldsV1("melted")
	}
	if got := intentOf(decide(world(newIcecream(), d))); got.Moves {
		t.Errorf("got %+v, want managed fields left alone", got)
	}
	for i := range d.ManagedFields {
		d.ManagedFields[i].FieldsV1 = nil
	}
	if got := intentOf(decide(world(newIcecream(), d))); got.Moves {
		t.Errorf("got %+v, want managed fields left alone", got)
	}
}

func TestASlowPodOfASkewedClockIsLookedAtAgain(t *testing.T) {
	d := made(t, newIcecream())
	rollingOut(d)
	o := world(newIcecream(), d)
	o.Pods = append(o.Pods[:2:2], seen(notReady(-2*time.Second)))
	if decide(o).RequeueAfter == 0 {
		t.Error("never looked at again")
	}
}

func TestARoundedQuantityIsNoDifference(t *testing.T) {
	ice := newIcecream(func(ice *v1alpha1.Icecream) {
		ice.Spec.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("100u")}
	})
	live := made(t, ice)
	for name, q := range live.Spec.Template.Spec.Containers[0].Resources.Requests {
		q.RoundUp(resource.Milli)
		live.Spec.Template.Spec.Containers[0].Resources.Requests[name] = q
	}
	if d := decide(world(ice, live)); d.Verdict != children.Converged {
		t.Errorf("%+v for ever", intentOf(d))
	}
}

func TestAnOrphanWithoutItsLabelIsTheSameStripped(t *testing.T) {
	d := made(t, newIcecream())
	orphaned(d)
	delete(d.Labels, LabelIcecream)
	whole := decide(world(newIcecream(), d)).Verdict
	children.StripForeign(d)
	if kept := decide(world(newIcecream(), d)).Verdict; whole != kept {
		t.Errorf("whole %v, stripped %v", whole, kept)
	}
}
