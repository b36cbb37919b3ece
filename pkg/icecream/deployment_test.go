package icecream

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files anew")

// specs are Icecreams that lead to different Deployments, by the name of the golden file.
var specs = map[string]*v1alpha1.Icecream{
	"plain":          newIcecream(),
	"defaults":       newIcecream(func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = nil }),
	"scaled-to-zero": newIcecream(scaledTo(0)),
	"resources": newIcecream(func(ice *v1alpha1.Icecream) {
		ice.Spec.Resources = v1alpha1.IcecreamResources{
			Requests: corev1.ResourceList{
				"cpu": resource.MustParse("0.1"), "memory": resource.MustParse("1024Mi"), "ephemeral-storage": resource.MustParse("100u"),
			},
			Limits: corev1.ResourceList{"memory": resource.MustParse("2Gi"), "example.com/scoop": resource.MustParse("1")},
		}
	}),
	"template": newIcecream(withTemplate(`{
		"metadata": {"labels": {"team": "parlor", "controller.nicoleh.io/icecream": "mud"}, "annotations": {"mesh": "on"}},
		"spec": {
			"serviceAccountName": "sundae",
			"securityContext": {"fsGroup": 7, "runAsNonRoot": null},
			"volumes": [{"name": "cups", "emptyDir": {}}],
			"initContainers": [{"name": "scoop", "image": "scoop"}],
			"containers": [
				{"name": "proxy", "image": "proxy:1"},
				{"name": "icecream", "env": [{"name": "A", "value": ""}], "securityContext": {"capabilities": {"add": ["CHOWN"]}}}
			]
		}}`)),
	"long-names": newIcecream(func(ice *v1alpha1.Icecream) {
		ice.Name = strings.Repeat("sprinkles-", 20)[:199] + "s"
		ice.Spec.DeploymentName = strings.Repeat("waffle.", 28) + "cone"
	}),
}

// The Deployments have exactly these fields.
func TestBuiltDeployments(t *testing.T) {
	for name, ice := range specs {
		t.Run(name, func(t *testing.T) {
			d, err := NewDeployment(ice)
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".golden.yaml")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s, or run with -update (-want +got):\n%s", golden, diff)
			}
		})
	}
}

// What the API server adds to a Deployment, and how it writes quantities, is no difference
// to repair, whether the Deployment was created for this spec or updated to it. Both are the same then.
func TestDefaultsOfTheServerAreNoDrift(t *testing.T) {
	for name, ice := range specs {
		t.Run(name, func(t *testing.T) {
			before := newIcecream(func(before *v1alpha1.Icecream) {
				before.Name, before.Spec.DeploymentName = ice.Name, ice.Spec.DeploymentName
			})
			created, updated := &parlor{TB: t}, &parlor{TB: t}
			created.apply(ice)
			updated.apply(before)
			updated.apply(ice)
			if diff := cmp.Diff(created.stored().Spec, updated.stored().Spec); diff != "" {
				t.Errorf("the Deployment is not as a new one (-new +updated):\n%s", diff)
			}
			if created.apply(ice) || updated.apply(ice) {
				t.Error("it is written again")
			}
		})
	}
}

// Another value of any field of the spec, one that it has today or one that is added later, is another wish and reaches
// the Deployment by one apply. Then there is nothing left to do.
func TestEveryFieldOfTheSpec(t *testing.T) {
	list := corev1.ResourceList{"cpu": resource.MustParse("7")}
	edits := map[string]func(*v1alpha1.Icecream){
		"DeploymentName":     nil, // The schema refuses that.
		"Replicas":           scaledTo(7),
		"Image":              withImage("another"),
		"Resources.Limits":   func(ice *v1alpha1.Icecream) { ice.Spec.Resources.Limits = list },
		"Resources.Requests": func(ice *v1alpha1.Icecream) { ice.Spec.Resources.Requests = list },
		"Template":           withTemplate(`{"metadata": {"annotations": {"note": "melted"}}}`),
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.IcecreamSpec]()) {
		names := []string{field.Name}
		if field.Type == reflect.TypeFor[v1alpha1.IcecreamResources]() {
			names = nil
			for _, below := range reflect.VisibleFields(field.Type) {
				names = append(names, field.Name+"."+below.Name)
			}
		}
		for _, name := range names {
			edit, isKnown := edits[name]
			if !isKnown { // It is new: any value does.
				edit = func(ice *v1alpha1.Icecream) {
					value := reflect.ValueOf(&ice.Spec).Elem().FieldByName(name)
					randfill.NewWithSeed(1).NilChance(0).Funcs(
						func(n *int32, _ randfill.Continue) { *n = 7 },
						func(d *time.Duration, _ randfill.Continue) { *d = 45 * time.Second },
					).Fill(value.Addr().Interface())
				}
			}
			if edit == nil {
				continue
			}
			updated, created := &parlor{TB: t}, &parlor{TB: t}
			updated.apply(newIcecream())
			isDue, again := updated.apply(newIcecream(edit)), updated.apply(newIcecream(edit))
			created.apply(newIcecream(edit))
			if diff := cmp.Diff(created.stored().Spec, updated.stored().Spec); diff != "" || !isDue || again {
				t.Errorf("another %s is written: %t, again: %t (-new +updated):\n%s", name, isDue, again, diff)
			}
		}
	}
}

// The policy is the one that the API server would set.
func TestPullPolicy(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for image, want := range map[string]corev1.PullPolicy{
		"vanilla": corev1.PullAlways, "vanilla:latest": corev1.PullAlways, "registry.example:5000/vanilla": corev1.PullAlways,
		"vanilla:latest" + digest: corev1.PullAlways, "vanilla:1": corev1.PullIfNotPresent, "registry.example:5000/vanilla:1": corev1.PullIfNotPresent,
		"vanilla" + digest: corev1.PullIfNotPresent, "vanilla:1" + digest: corev1.PullIfNotPresent,
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("of %s, it is %s, want %s", image, got, want)
		}
	}
}

// Adoption removes what the template of a previous Icecream has set: the new Icecream can have somebody else's image.
func TestAdoptionEndsTheTemplateBefore(t *testing.T) {
	p := &parlor{TB: t}
	p.apply(newIcecream(withTemplate(`{"spec":{"serviceAccountName":"bank","containers":[{"name":"icecream","env":[{"name":"A","value":"a"}]}]}}`)))
	d := p.stored()
	orphaned(d)
	p.store, _ = model.Update(p.store, now, d)
	after := newIcecream(withImage("mint"), func(ice *v1alpha1.Icecream) { ice.UID = "another" })
	p.apply(after)
	if d := p.stored(); !IsControlledBy(d, after) || ours(d).Image != "mint" || ours(d).Env != nil || d.Spec.Template.Spec.ServiceAccountName != "" {
		t.Errorf("adopted %+v", d)
	}
}
