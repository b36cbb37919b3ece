package icecream

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
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
			created := applied(t, apiserver.Store{}, ice)
			updated := applied(t, applied(t, apiserver.Store{}, before), ice)
			if diff := cmp.Diff(onlyOne(t, created).Spec, onlyOne(t, updated).Spec); diff != "" {
				t.Errorf("the Deployment is not as a new one (-new +updated):\n%s", diff)
			}
			for _, store := range []apiserver.Store{created, updated} {
				if again := applied(t, store, ice); again.Version != store.Version {
					t.Error("it is written again")
				}
			}
		})
	}
}

// Our fields are repaired by one write, and those of others stay as they are.
func TestDrift(t *testing.T) {
	type drift map[string]func(*appsv1.Deployment)
	pod := func(d *appsv1.Deployment) *corev1.PodSpec { return &d.Spec.Template.Spec }
	ofOurs := drift{
		"replicas":                func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](5) },
		"image":                   func(d *appsv1.Deployment) { ours(d).Image = "registry.example/mud:1" },
		"our container is gone":   func(d *appsv1.Deployment) { ours(d).Name = "mud" },
		"a label of ours is gone": func(d *appsv1.Deployment) { delete(d.Labels, labelManagedBy) },
		"a label of the Pods": func(d *appsv1.Deployment) {
			d.Spec.Template.Labels[labelName] = "sorbet"
		},
		"our annotation is gone": func(d *appsv1.Deployment) { d.Annotations = nil },
		"the owner does not block": func(d *appsv1.Deployment) {
			d.OwnerReferences[0].BlockOwnerDeletion = nil
		},
		"an owner of another version": func(d *appsv1.Deployment) {
			d.OwnerReferences[0].APIVersion = v1alpha1.GroupName + "/v1alpha0" // The garbage collector asks for exactly that version.
		},
		"less security": func(d *appsv1.Deployment) {
			pod(d).AutomountServiceAccountToken, pod(d).SecurityContext = nil, nil
			ours(d).SecurityContext.AllowPrivilegeEscalation = ptr.To(true)
		},
		"other capabilities dropped": func(d *appsv1.Deployment) {
			ours(d).SecurityContext.Capabilities.Drop = []corev1.Capability{"NET_RAW", "ALL"}
		},
		"other nodes":        func(d *appsv1.Deployment) { pod(d).NodeSelector["disk"] = "ssd" },
		"a lower request":    func(d *appsv1.Deployment) { ours(d).Resources.Requests["cpu"] = resource.MustParse("1m") },
		"a request is gone":  func(d *appsv1.Deployment) { delete(ours(d).Resources.Requests, "cpu") },
		"who manages what":   func(d *appsv1.Deployment) { d.ManagedFields = []metav1.ManagedFieldsEntry{{}} },
		"our pull policy":    func(d *appsv1.Deployment) { ours(d).ImagePullPolicy = corev1.PullAlways },
		"the links of Pods":  func(d *appsv1.Deployment) { pod(d).EnableServiceLinks = nil },
		"other replicas too": func(d *appsv1.Deployment) { ours(d).Image, d.Spec.Replicas = "mud", ptr.To[int32](9) },
	}
	ofOthers := drift{
		"nothing": func(*appsv1.Deployment) {},
		"the same request in other words": func(d *appsv1.Deployment) {
			ours(d).Resources.Requests["memory"] = resource.MustParse("1048576Ki")
		},
		"an added capability": func(d *appsv1.Deployment) {
			ours(d).SecurityContext.Capabilities.Add = []corev1.Capability{"NET_BIND_SERVICE"}
		},
		"another limit": func(d *appsv1.Deployment) {
			ours(d).Resources.Limits["cpu"] = resource.MustParse("1")
		},
		"metadata": func(d *appsv1.Deployment) {
			menu := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "menu", UID: "menu"}
			d.OwnerReferences = append(d.OwnerReferences[:1], menu)
			d.Labels["team"], d.Annotations["deployment.kubernetes.io/revision"] = "parlor", "3"
			d.Spec.Template.Labels["mesh"] = "on"
			d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "2026-07-01T12:00:00Z"}
		},
		"the Pods": func(d *appsv1.Deployment) {
			pod(d).Tolerations = []corev1.Toleration{{Key: "freezer"}}
			ours(d).Env = []corev1.EnvVar{{Name: "FLAVOR", Value: "vanilla"}}
			ours(d).SecurityContext.ReadOnlyRootFilesystem = ptr.To(true)
			sidecar := ours(d).DeepCopy()
			sidecar.Name = fmt.Sprintf("sidecar-%d", len(pod(d).Containers))
			pod(d).Containers = append(pod(d).Containers, *sidecar)
		},
	}
	for _, drifts := range []drift{ofOurs, ofOthers} {
		for name, edit := range drifts {
			t.Run(name, func(t *testing.T) {
				ice := specs["resources"]
				store := edited(t, applied(t, apiserver.Store{}, ice), ofOthers["metadata"])
				store = edited(t, store, ofOthers["the Pods"])
				before := onlyOne(t, store)
				store = edited(t, store, edit)
				drifted := onlyOne(t, store)
				store = applied(t, store, ice)
				after := onlyOne(t, store)
				_, isOurs := ofOurs[name]
				if isRepaired := after.ResourceVersion != drifted.ResourceVersion; isRepaired != isOurs {
					t.Errorf("repaired: %t", isRepaired)
				}
				if isOurs && name == "our container is gone" { // Another one has its place, and stays.
					after.Spec.Template.Spec.Containers = after.Spec.Template.Spec.Containers[:2]
					before.Spec.Template.Spec.Containers = after.Spec.Template.Spec.Containers
				}
				want := drifted
				if isOurs {
					want = before
				}
				if name == "our annotation is gone" { // and with it another
					delete(want.Annotations, "deployment.kubernetes.io/revision")
				}
				ignored := cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ManagedFields", "ResourceVersion", "Generation")
				if diff := cmp.Diff(want, after, ignored, cmpopts.SortSlices(func(a, b corev1.Container) bool { return a.Name < b.Name })); diff != "" {
					t.Errorf("stored (-want +got):\n%s", diff)
				}
				if again := applied(t, store, ice); again.Version != store.Version {
					t.Error("it is written again")
				}
			})
		}
	}
}

// A resource that is removed from the spec is removed from the Deployment. Resources that others have added stay.
func TestResourcesThatLeaveTheSpec(t *testing.T) {
	asks := func(amounts ...string) *v1alpha1.Icecream {
		list := corev1.ResourceList{}
		for i, amount := range amounts {
			list[[]corev1.ResourceName{"memory", "cpu"}[i]] = resource.MustParse(amount)
		}
		return newIcecream(func(ice *v1alpha1.Icecream) { ice.Spec.Resources.Limits, ice.Spec.Resources.Requests = list, list })
	}
	store := edited(t, applied(t, apiserver.Store{}, asks("1Gi", "1")), func(d *appsv1.Deployment) {
		ours(d).Resources.Limits["ephemeral-storage"] = resource.MustParse("5Gi")
	})
	for _, ice := range []*v1alpha1.Icecream{asks("1Gi", "2"), asks("1Gi"), asks()} {
		store = applied(t, store, ice)
		want, got := ice.Spec.Resources.DeepCopy(), ours(onlyOne(t, store)).Resources
		want.Limits["ephemeral-storage"] = resource.MustParse("5Gi")
		if diff := cmp.Diff(corev1.ResourceRequirements{Limits: want.Limits, Requests: want.Requests}, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("resources (-want +got):\n%s", diff)
		}
	}
}

// Other spellings of a quantity change nothing in the Pod template.
func TestEqualIsEqual(t *testing.T) {
	asks := func(memory, cpu string) *v1alpha1.Icecream {
		return newIcecream(func(ice *v1alpha1.Icecream) {
			ice.Spec.Resources.Limits = corev1.ResourceList{"memory": resource.MustParse(memory), "cpu": resource.MustParse(cpu)}
		})
	}
	store := applied(t, apiserver.Store{}, asks("1Gi", "1"))
	was := onlyOne(t, store)
	for _, spelling := range [][2]string{{"1073741824", "1"}, {"1024Mi", "1000m"}, {"1048576Ki", "0.001k"}, {"1.073741824e9", "1"}} {
		store = applied(t, store, asks(spelling[0], spelling[1]))
		if is := onlyOne(t, store); !equality.Semantic.DeepEqual(is.Spec, was.Spec) {
			t.Errorf("%s changes the Pods (-before +after):\n%s", spelling, cmp.Diff(was.Spec, is.Spec))
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
	before := newIcecream(withTemplate(`{"spec":{"serviceAccountName":"bank","containers":[{"name":"icecream","env":[{"name":"A","value":"a"}]}]}}`))
	store := edited(t, applied(t, apiserver.Store{}, before), orphaned)
	after := newIcecream(withImage("mint"), func(ice *v1alpha1.Icecream) { ice.UID = "another" })
	d := onlyOne(t, applied(t, store, after))
	if !IsControlledBy(d, after) || ours(d).Image != "mint" || ours(d).Env != nil || d.Spec.Template.Spec.ServiceAccountName != "" {
		t.Errorf("adopted %+v", d)
	}
}
