package icecream

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
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
	"long-names": newIcecream(func(ice *v1alpha1.Icecream) {
		ice.Name = strings.Repeat("sprinkles-", 20)[:199] + "s"
		ice.Spec.DeploymentName = strings.Repeat("waffle.", 28) + "cone"
	}),
}

// The Deployments have exactly these fields.
func TestBuiltDeployments(t *testing.T) {
	for name, ice := range specs {
		t.Run(name, func(t *testing.T) {
			d := NewDeployment(ice)
			d.Annotations[AnnotationAsked] = "digest" // of labels, too, which have other names in a fork
			d.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
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
			if diff := cmp.Diff(withSortedKeys(t, want), string(got)); diff != "" {
				t.Errorf("%s, or run with -update (-want +got):\n%s", golden, diff)
			}
		})
	}
}

// withSortedKeys returns YAML with its keys in order. In a fork, a file that was made with
// other names can have them in another order.
func withSortedKeys(t *testing.T, text []byte) string {
	t.Helper()
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What the API server adds to a Deployment, and how it writes quantities, is no difference
// to repair, whether the Deployment was created for this spec or updated to it.
func TestDefaultsOfTheServerAreNoDrift(t *testing.T) {
	for name, ice := range specs {
		t.Run(name, func(t *testing.T) {
			before := newIcecream(func(before *v1alpha1.Icecream) {
				before.Name, before.Spec.DeploymentName = ice.Name, ice.Spec.DeploymentName
			})
			updated := stored(t, before, func(d *appsv1.Deployment) {
				after, _ := repaired(t, ice, d)
				*d = *after
			})
			for _, d := range []*appsv1.Deployment{stored(t, ice), updated} {
				if _, isDue := repaired(t, ice, d); isDue {
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
	c := func(d *appsv1.Deployment) *corev1.Container { return containerOf(&d.Spec.Template) }
	ofOurs := drift{
		"replicas":                func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](5) },
		"image":                   func(d *appsv1.Deployment) { c(d).Image = "registry.example/mud:1" },
		"our container is gone":   func(d *appsv1.Deployment) { c(d).Name = "mud" },
		"a label of ours is gone": func(d *appsv1.Deployment) { delete(d.Labels, labelManagedBy) },
		"a label of the Pods": func(d *appsv1.Deployment) {
			d.Spec.Template.Labels[labelName] = "sorbet"
		},
		"our annotation is gone": func(d *appsv1.Deployment) { d.Annotations = nil },
		"the owner does not block": func(d *appsv1.Deployment) {
			d.OwnerReferences[1].BlockOwnerDeletion = nil
		},
		"an owner of another version": func(d *appsv1.Deployment) {
			d.OwnerReferences[1].APIVersion = v1alpha1.GroupName + "/v1alpha0" // The garbage collector asks for exactly that version.
		},
		"less security": func(d *appsv1.Deployment) {
			pod(d).AutomountServiceAccountToken, pod(d).SecurityContext = nil, nil
			c(d).SecurityContext.AllowPrivilegeEscalation = ptr.To(true)
		},
		"other capabilities dropped": func(d *appsv1.Deployment) {
			c(d).SecurityContext.Capabilities.Drop = []corev1.Capability{"NET_RAW", "ALL"}
		},
		"a seccomp profile of the node": func(d *appsv1.Deployment) {
			profile := pod(d).SecurityContext.SeccompProfile
			profile.Type, profile.LocalhostProfile = corev1.SeccompProfileTypeLocalhost, ptr.To("mud.json")
		},
		"no seccomp profile, by field and annotation": func(d *appsv1.Deployment) {
			pod(d).SecurityContext.SeccompProfile.Type = corev1.SeccompProfileTypeUnconfined
			d.Spec.Template.Annotations = map[string]string{corev1.SeccompPodAnnotationKey: corev1.SeccompProfileNameUnconfined, "mesh": "on"}
		},
		"all privileges": func(d *appsv1.Deployment) {
			c(d).SecurityContext.Privileged, c(d).SecurityContext.AllowPrivilegeEscalation = ptr.To(true), nil
			c(d).SecurityContext.Capabilities.Add = []corev1.Capability{"CAP_SYS_ADMIN", "NET_BIND_SERVICE"}
		},
		"another operating system": func(d *appsv1.Deployment) {
			pod(d).OS = &corev1.PodOS{Name: corev1.Windows} // which excludes our security context
			pod(d).SecurityContext, c(d).SecurityContext = nil, nil
			pod(d).NodeSelector = map[string]string{corev1.LabelOSStable: "windows", "disk": "ssd"}
		},
		"an init container with the name of ours": func(d *appsv1.Deployment) {
			c(d).Name = "mud"
			pod(d).InitContainers = []corev1.Container{{Name: containerName, Image: "mud"}, {Name: "first", Image: "mud"}}
		},
		"another limit": func(d *appsv1.Deployment) {
			c(d).Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1")}
		},
		"a lower request": func(d *appsv1.Deployment) {
			c(d).Resources.Requests["cpu"] = resource.MustParse("1m")
		},
		"a claim": func(d *appsv1.Deployment) {
			pod(d).ResourceClaims = []corev1.PodResourceClaim{{Name: "freezer"}, {Name: "mixer"}}
			c(d).Resources.Claims = []corev1.ResourceClaim{{Name: "freezer"}, {Name: "mixer"}}
		},
	}
	ofOthers := drift{
		"nothing": func(*appsv1.Deployment) {},
		"the same request in other words": func(d *appsv1.Deployment) {
			c(d).Resources.Requests["memory"] = resource.MustParse("1048576Ki")
		},
		"an added capability": func(d *appsv1.Deployment) {
			c(d).SecurityContext.Capabilities.Add = []corev1.Capability{"NET_BIND_SERVICE"}
		},
		"metadata": func(d *appsv1.Deployment) {
			menu := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "menu", UID: "menu"}
			d.OwnerReferences = append([]metav1.OwnerReference{menu}, d.OwnerReferences...)
			d.Labels["team"], d.Annotations["deployment.kubernetes.io/revision"] = "parlor", "3"
			d.Spec.Template.Labels["mesh"] = "on"
			d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "2026-07-01T12:00:00Z"}
		},
		"the Pods": func(d *appsv1.Deployment) {
			pod(d).Tolerations, pod(d).Volumes = []corev1.Toleration{{Key: "freezer"}}, []corev1.Volume{{Name: "mesh"}}
			c(d).Env = []corev1.EnvVar{{Name: "FLAVOR", Value: "vanilla"}}
			c(d).SecurityContext.ReadOnlyRootFilesystem = ptr.To(true)
			pod(d).Containers = []corev1.Container{{Name: "sidecar", Image: "registry.example/mesh:1"}, *c(d)}
		},
	}
	for _, drifts := range []drift{ofOurs, ofOthers} {
		for name, edit := range drifts {
			t.Run(name, func(t *testing.T) {
				ice := specs["resources"]
				before := stored(t, ice)
				ofOthers["metadata"](before)
				ofOthers["the Pods"](before)
				edit(before)
				after, isRepaired := repaired(t, ice, before)
				if _, isOurs := ofOurs[name]; isRepaired != isOurs {
					t.Errorf("repaired: %t", isRepaired)
				}
				want := before.DeepCopy()
				setDeployment(want, ice)
				if diff := cmp.Diff(want, after, equateEmpty); diff != "" {
					t.Errorf("stored (-want +got):\n%s", diff)
				}
				if _, again := repaired(t, ice, after); again {
					t.Error("it is written again")
				}
			})
		}
	}
}

// A resource that leaves the spec leaves the Deployment, and so do resources that others add:
// all resources of our container are ours.
func TestResourcesThatLeaveTheSpec(t *testing.T) {
	asks := func(amounts ...string) *v1alpha1.Icecream {
		list := corev1.ResourceList{}
		for i, amount := range amounts {
			list[[]corev1.ResourceName{"memory", "cpu"}[i]] = resource.MustParse(amount)
		}
		return newIcecream(func(ice *v1alpha1.Icecream) { ice.Spec.Resources.Limits, ice.Spec.Resources.Requests = list, list })
	}
	d := stored(t, asks("1Gi", "1"), func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources.Limits["ephemeral-storage"] = resource.MustParse("5Gi")
	})
	for _, ice := range []*v1alpha1.Icecream{asks("1Gi", "2"), asks("1Gi"), asks()} {
		d, _ = repaired(t, ice, d)
		want, got := ice.Spec.Resources, d.Spec.Template.Spec.Containers[0].Resources
		if diff := cmp.Diff(corev1.ResourceRequirements{Limits: want.Limits, Requests: want.Requests}, got, equateEmpty); diff != "" {
			t.Errorf("resources (-want +got):\n%s", diff)
		}
	}
}

// Equal specs are one wish, however they are written, and other specs are others. So only an edit that
// changes something replaces Pods.
func TestEqualIsEqual(t *testing.T) {
	asks := func(memory, cpu string) *v1alpha1.Icecream {
		return newIcecream(func(ice *v1alpha1.Icecream) {
			ice.Spec.Resources.Limits = corev1.ResourceList{"memory": resource.MustParse(memory), "cpu": resource.MustParse(cpu)}
		})
	}
	ice := asks("1Gi", "1")
	d := made(t, ice)
	for _, spelling := range [][2]string{{"1073741824", "1"}, {"1024Mi", "1000m"}, {"1048576Ki", "999999u"}, {"1.073741824e9", "0.001k"}} {
		same := asks(spelling[0], spelling[1])
		if got, want := wishOf(same), wishOf(ice); got != want {
			t.Errorf("the wish is %v, want %v", got, want)
		}
		if got := decided(Observed{Now: now, Icecream: same, Live: d}); got != "nothing" {
			t.Errorf("of other words, this is written: %s", got)
		}
		scaledTo(4)(same)
		if got := decided(Observed{Now: now, Icecream: same, Live: d}); got != "replicas" {
			t.Errorf("with other replicas, this is written: %s", got)
		}
	}
	for _, other := range []*v1alpha1.Icecream{asks("1Gi", "1001m"), asks("1e9", "1"), asks("1e90", "1"), asks("1e99", "1")} {
		if wishOf(other).Digest == wishOf(ice).Digest {
			t.Errorf("%v is the same wish", other.Spec.Resources.Limits)
		}
		ice = other
	}
}
