package icecream

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/children"
)

// A Deployment in which there was nothing to repair is not compared again as long as it
// is the same. What happens to it or to the spec afterwards is still found.
func TestWhatChangesAfterAMatch(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*appsv1.Deployment)
		ask  func(*v1alpha1.Icecream)
		want string // drift
	}{
		{name: "nothing"},
		{name: "the status", edit: func(d *appsv1.Deployment) { d.Status.ReadyReplicas-- }},
		{name: "somebody's label", edit: func(d *appsv1.Deployment) { d.Labels["team"] = "parlor" }},
		{name: "a label of ours", edit: func(d *appsv1.Deployment) { d.Labels[labelName] = "mud" }, want: "metadata.labels.app.kubernetes.io/name"},
		{
			name: "the Pods' annotation", edit: func(d *appsv1.Deployment) { d.Spec.Template.Annotations = nil },
			want: "spec.template.metadata.annotations",
		},
		{
			name: "the owner reference", edit: func(d *appsv1.Deployment) { d.OwnerReferences[0].BlockOwnerDeletion = nil },
			want: `metadata.ownerReferences[uid="uid-of-sundae"].blockOwnerDeletion`,
		},
		{name: "its spec", edit: func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](7) }, want: "spec.replicas"},
		{
			name: "the Icecream's spec", ask: func(ice *v1alpha1.Icecream) { ice.Generation, ice.Spec.Replicas = 2, ptr.To[int32](4) },
			want: "spec.replicas",
		},
		{
			// As when the CustomResourceDefinition gets another default.
			name: "the Icecream's spec, but not its generation", ask: func(ice *v1alpha1.Icecream) { ice.Spec.Image = "registry.example/chocolate:1" },
			want: `spec.template.metadata.annotations.controller.nicoleh.io/spec-hash, spec.template.spec.containers[name="icecream"].image`,
		},
		{
			name: "a limit that the spec had", ask: func(ice *v1alpha1.Icecream) { ice.Spec.Resources.Limits = nil },
			want: `spec.template.metadata.annotations.controller.nicoleh.io/spec-hash, spec.template.spec.containers[name="icecream"].resources.limits.cpu`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, ice := newServer(t), newIcecream(func(ice *v1alpha1.Icecream) {
				ice.Spec.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1")}
			})
			s.carryOut(creates(ice))
			s.rollOut()
			memory := known(s.observe(ice)).Memory
			if memory.Write.Match == (children.Match{}) {
				t.Fatal("the Deployment was not compared")
			}
			if tt.edit != nil {
				s.update("somebody", "sundae", tt.edit)
			}
			if tt.ask != nil {
				tt.ask(ice)
			}
			o := s.observe(ice)
			o.Memory = memory
			d := decide(o)
			if got := driftOf(d); got != tt.want {
				t.Errorf("drift in %q, want %q", got, tt.want)
			}
			if isSame := d.Match == memory.Write.Match; isSame != (tt.edit == nil && tt.ask == nil) {
				t.Errorf("the match is the same: %t", isSame)
			}
		})
	}
}

// Whatever happens, and whenever the controller looks, it decides as one does that
// compares everything every time.
func TestMatchChangesNoDecision(t *testing.T) {
	edits := []func(*appsv1.Deployment){
		func(*appsv1.Deployment) {},
		func(d *appsv1.Deployment) { rolledOut(d) },
		func(d *appsv1.Deployment) { d.Status.ReadyReplicas++ },
		func(d *appsv1.Deployment) { d.Labels[labelName] = "mud" },
		func(d *appsv1.Deployment) { d.Labels[labelName] = "icecream" },
		func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": "b"} },
		func(d *appsv1.Deployment) { d.OwnerReferences = nil },
		func(d *appsv1.Deployment) {
			if len(d.OwnerReferences) > 0 {
				d.OwnerReferences[0].BlockOwnerDeletion = ptr.To(false)
			}
		},
		func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](3) },
		func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](7) },
		func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "mud" },
		func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("9")}
		},
	}
	asks := []func(*v1alpha1.Icecream){
		func(ice *v1alpha1.Icecream) { ice.Labels = map[string]string{"a": "b"} },
		func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To[int32](7) },
		func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To[int32](3) },
		func(ice *v1alpha1.Icecream) {
			ice.Spec.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1")}
		},
		func(ice *v1alpha1.Icecream) { ice.Spec.Resources.Limits = nil },
		func(ice *v1alpha1.Icecream) { ice.Spec.DeploymentName = "cone" },
		func(ice *v1alpha1.Icecream) { ice.Spec.DeploymentName = "" },
		func(ice *v1alpha1.Icecream) { ice.UID = "uid-of-another" },
		func(ice *v1alpha1.Icecream) { ice.UID = "uid-of-sundae" },
	}
	var matched int
	rapid.Check(t, func(t *rapid.T) {
		s, ice := newServer(t), newIcecream()
		var memory Memory
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch live := s.deployments[DeploymentName(ice)]; rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				if live != nil {
					s.update("somebody", live.Name, rapid.SampledFrom(edits).Draw(t, "edit"))
				}
			case 1:
				ice = ice.DeepCopy()
				rapid.SampledFrom(asks).Draw(t, "ask")(ice)
				ice.Generation += rapid.Int64Range(0, 1).Draw(t, "generations")
			case 2:
				if live != nil && rapid.Bool().Draw(t, "is deleted") {
					delete(s.deployments, live.Name)
				}
			case 3:
				if rapid.Bool().Draw(t, "the process begins again") {
					memory = Memory{}
				}
			default:
				o := s.observe(ice)
				o.Memory = memory
				whole := o
				whole.Memory.Write.Match = children.Match{}
				d, want := decide(o), decide(whole)
				if diff := cmp.Diff(snapshot(t, want), snapshot(t, d)); diff != "" {
					t.Fatalf("with a match, the decision is another (-without +with):\n%s", diff)
				}
				if d.Match != (children.Match{}) && d.Match == memory.Write.Match {
					matched++
				}
				var out Outcome
				if d.Verdict == children.Act && rapid.Bool().Draw(t, "succeeds") {
					out = s.carryOut(d)
				}
				now, _ := Remember(Assess(o), d, out)
				memory = now.Memory
			}
		}
	})
	if matched == 0 {
		t.Error("no Deployment was ever the same as before")
	}
}
