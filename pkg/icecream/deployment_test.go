package icecream

import (
	gocmp "cmp"
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
	"nicoleh.io/k8s-controller/pkg/kit/ledger"
)

var update = flag.Bool("update", false, "write the golden files anew")

// specs are Icecreams that lead to different Deployments, by the name of the golden file.
var specs = map[string]*v1alpha1.Icecream{
	"plain":          newIcecream(),
	"defaults":       newIcecream(func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = nil }),
	"scaled-to-zero": newIcecream(scaledTo(0)),
	"resources": newIcecream(func(ice *v1alpha1.Icecream) {
		ice.Spec.Resources = v1alpha1.IcecreamResources{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("0.1"), "memory": resource.MustParse("1024Mi"), "ephemeral-storage": resource.MustParse("100u")},
			Limits:   corev1.ResourceList{"memory": resource.MustParse("2Gi"), "example.com/scoop": resource.MustParse("1")},
		}
	}),
	"long-names": newIcecream(calls(strings.Repeat("waffle.", 28)+"cone"), func(ice *v1alpha1.Icecream) {
		ice.Name = strings.Repeat("sprinkles-", 20)[:199] + "s"
	}),
}

func scaledTo(n int32) func(*v1alpha1.Icecream) {
	return func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To(n) }
}

// The Deployments have exactly these fields.
func TestBuiltDeployments(t *testing.T) {
	for name, ice := range specs {
		t.Run(name, func(t *testing.T) {
			d := NewDeployment(ice)
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
			before := newIcecream(calls(ice.Spec.DeploymentName), func(before *v1alpha1.Icecream) { before.Name = ice.Name })
			updated, _ := repaired(t, ice, stored(t, before))
			for _, d := range []*appsv1.Deployment{stored(t, ice), updated} {
				if _, again := repaired(t, ice, d); again != "" {
					t.Errorf("written again: %s", again)
				}
			}
		})
	}
}

// Our fields are repaired, and those of others stay as they are.
func TestDrift(t *testing.T) {
	container := func(d *appsv1.Deployment) *corev1.Container { return containerOf(&d.Spec.Template) }
	for name, test := range map[string]struct {
		ice  *v1alpha1.Icecream
		edit func(*appsv1.Deployment)
		want string // the fields that are repaired
	}{
		"untouched": {edit: func(*appsv1.Deployment) {}},
		"scaled":    {edit: func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](5) }, want: "spec.replicas"},
		"another image": {
			edit: func(d *appsv1.Deployment) { container(d).Image = "registry.example/mud:1" },
			want: "spec.template.spec.containers[icecream].image",
		},
		"our container is gone": {
			edit: func(d *appsv1.Deployment) { container(d).Name = "mud" },
			want: "spec.template.spec.containers[icecream]",
		},
		"a label of ours is gone": {
			edit: func(d *appsv1.Deployment) { delete(d.Labels, labelManagedBy) },
			want: "metadata.labels.app.kubernetes.io/managed-by",
		},
		"the Pods' annotation of ours is gone": {
			edit: func(d *appsv1.Deployment) { delete(d.Spec.Template.Annotations, AnnotationSpecHash) },
			want: "spec.template.metadata.annotations",
		},
		"the hash of another version of this controller": {
			edit: func(d *appsv1.Deployment) { d.Spec.Template.Annotations[AnnotationSpecHash] = "melted" },
		},
		"less security": {
			edit: func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.AutomountServiceAccountToken = nil
				d.Spec.Template.Spec.SecurityContext = nil
				container(d).SecurityContext.AllowPrivilegeEscalation = ptr.To(true)
			},
			want: "spec.template.spec.automountServiceAccountToken, spec.template.spec.containers[icecream].securityContext.allowPrivilegeEscalation, " +
				"spec.template.spec.securityContext.runAsNonRoot, spec.template.spec.securityContext.seccompProfile",
		},
		"other capabilities dropped": {
			edit: func(d *appsv1.Deployment) {
				container(d).SecurityContext.Capabilities.Drop = []corev1.Capability{"NET_RAW", "ALL"}
			},
			want: "spec.template.spec.containers[icecream].securityContext.capabilities.drop",
		},
		"a seccomp profile of the node": {
			edit: func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.SecurityContext.SeccompProfile = &corev1.SeccompProfile{
					Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("mud.json"),
				}
			},
			want: "spec.template.spec.securityContext.seccompProfile.localhostProfile, spec.template.spec.securityContext.seccompProfile.type",
		},
		"no seccomp profile, by field and annotation": {
			edit: func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.SecurityContext.SeccompProfile.Type = corev1.SeccompProfileTypeUnconfined
				d.Spec.Template.Annotations[corev1.SeccompPodAnnotationKey] = corev1.SeccompProfileNameUnconfined
			},
			want: "spec.template.metadata.annotations.seccomp.security.alpha.kubernetes.io/pod, spec.template.spec.securityContext.seccompProfile.type",
		},
		"all privileges": {
			edit: func(d *appsv1.Deployment) {
				security := container(d).SecurityContext
				security.Privileged, security.AllowPrivilegeEscalation = ptr.To(true), nil
				security.Capabilities.Add = []corev1.Capability{"CAP_SYS_ADMIN", "NET_BIND_SERVICE"}
			},
			want: "spec.template.spec.containers[icecream].securityContext.allowPrivilegeEscalation, " +
				"spec.template.spec.containers[icecream].securityContext.capabilities.add, " +
				"spec.template.spec.containers[icecream].securityContext.privileged",
		},
		"an added capability": {
			edit: func(d *appsv1.Deployment) {
				container(d).SecurityContext.Capabilities.Add = []corev1.Capability{"NET_BIND_SERVICE"}
			},
		},
		"another operating system": {
			edit: func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.OS = &corev1.PodOS{Name: corev1.Windows} // which excludes our security context
				d.Spec.Template.Spec.SecurityContext, container(d).SecurityContext = nil, nil
				d.Spec.Template.Spec.NodeSelector = map[string]string{"kubernetes.io/os": "windows", "disk": "ssd"}
			},
			want: "spec.template.spec.containers[icecream].securityContext, spec.template.spec.nodeSelector.kubernetes.io/os, " +
				"spec.template.spec.os.name, spec.template.spec.securityContext.runAsNonRoot, spec.template.spec.securityContext.seccompProfile",
		},
		"an init container with the name of ours": {
			edit: func(d *appsv1.Deployment) {
				container(d).Name = "mud"
				d.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: containerName, Image: "mud"}, {Name: "first", Image: "mud"}}
			},
			want: "spec.template.spec.containers[icecream], spec.template.spec.initContainers[icecream]",
		},
		"the owner reference does not block": {
			edit: func(d *appsv1.Deployment) { d.OwnerReferences[0].BlockOwnerDeletion = nil },
			want: "metadata.ownerReferences[sundae].blockOwnerDeletion",
		},
		"another limit": {
			edit: func(d *appsv1.Deployment) {
				container(d).Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1")}
			},
			want: "spec.template.spec.containers[icecream].resources.limits",
		},
		"a lower request": {
			ice:  specs["resources"],
			edit: func(d *appsv1.Deployment) { container(d).Resources.Requests["cpu"] = resource.MustParse("1m") },
			want: "spec.template.spec.containers[icecream].resources.requests.cpu",
		},
		"the same request in other words": {
			ice: specs["resources"],
			edit: func(d *appsv1.Deployment) {
				container(d).Resources.Requests["memory"] = resource.MustParse("1048576Ki")
			},
		},
		"what others add": {
			edit: func(d *appsv1.Deployment) {
				d.OwnerReferences = append([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "menu", UID: "menu"}}, d.OwnerReferences...)
				d.Labels["team"] = "parlor"
				d.Annotations = map[string]string{"deployment.kubernetes.io/revision": "3"}
				d.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] = "2026-07-01T12:00:00Z"
				d.Spec.Template.Labels["mesh"] = "on"
				pod := &d.Spec.Template.Spec
				pod.Tolerations = []corev1.Toleration{{Key: "freezer"}}
				pod.Volumes = []corev1.Volume{{Name: "mesh"}}
				c := container(d)
				c.Env = []corev1.EnvVar{{Name: "FLAVOR", Value: "vanilla"}}
				c.SecurityContext.ReadOnlyRootFilesystem = ptr.To(true)
				pod.Containers = []corev1.Container{{Name: "sidecar", Image: "registry.example/mesh:1"}, *c}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ice := gocmp.Or(test.ice, newIcecream())
			before := stored(t, ice, test.edit)
			after, repairs := repaired(t, ice, before.DeepCopy())
			if repairs != test.want {
				t.Errorf("repaired %q, want %q", repairs, test.want)
			}
			if _, again := repaired(t, ice, after); again != "" {
				t.Errorf("not repaired: %s", again)
			}
			// The API server has made of the patch what was wanted, and so has changed nothing else.
			if repairs != "" {
				before = wanted(before, ice)
			}
			if diff := cmp.Diff([]any{before.Labels, before.Annotations, before.OwnerReferences}, []any{after.Labels, after.Annotations, after.OwnerReferences}); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
			fill := func(c *corev1.Container) {
				c.ImagePullPolicy, c.TerminationMessagePath, c.TerminationMessagePolicy = "", "", ""
			}
			fill(container(before))
			fill(container(after))
			if diff := cmp.Diff(before.Spec, after.Spec, equateEmpty); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}

// A field that leaves the spec leaves the Deployment, and so do resources that others add:
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

// Equal specs make equal templates, however they are written, and other ones make others. So only an
// edit that changes something replaces Pods.
func TestEqualIsEqual(t *testing.T) {
	asks := func(memory, cpu string) *v1alpha1.Icecream {
		return newIcecream(func(ice *v1alpha1.Icecream) {
			ice.Spec.Resources.Limits = corev1.ResourceList{"memory": resource.MustParse(memory), "cpu": resource.MustParse(cpu)}
		})
	}
	ice := asks("1Gi", "1")
	d := stored(t, ice)
	template := d.Spec.Template
	for _, same := range []*v1alpha1.Icecream{asks("1073741824", "1"), asks("1024Mi", "1000m"), asks("1048576Ki", "999999u")} {
		if got, want := specHash(same.Spec), specHash(ice.Spec); got != want {
			t.Errorf("the hash is %s, want %s", got, want)
		}
		if _, repairs := repaired(t, same, d); repairs != "" {
			t.Errorf("written again: %s", repairs)
		}
		same.Spec.Replicas = ptr.To[int32](4)
		scaled, _ := repaired(t, same, d)
		if diff := cmp.Diff(template, scaled.Spec.Template); diff != "" {
			t.Errorf("template (-before +after):\n%s", diff)
		}
	}
	other := asks("1Gi", "1001m")
	d, _ = repaired(t, other, d)
	if got := d.Spec.Template.Annotations[AnnotationSpecHash]; got == template.Annotations[AnnotationSpecHash] || got != specHash(other.Spec) {
		t.Errorf("the hash of another spec is %s", got)
	}
}

// driftOf names the fields that are to be repaired.
func driftOf(o Observed, due []ledger.Ask) string {
	if o.Live == nil {
		return ""
	}
	var fields []string
	for _, d := range differences(o.Live, o.want(due)) {
		fields = append(fields, d.Field)
	}
	return strings.Join(fields, ", ")
}

// The Deployments of two Icecreams never select each other's Pods.
func TestSelectorsDoNotOverlap(t *testing.T) {
	of := map[string]string{}
	for _, name := range []string{"sundae", "cone", strings.Repeat("a", 64), strings.Repeat("a", 65)} {
		ice := newIcecream(func(ice *v1alpha1.Icecream) { ice.Name = name })
		selector := metav1.FormatLabelSelector(NewDeployment(ice).Spec.Selector)
		if of[selector] != "" {
			t.Errorf("%s and %s share the selector %s", of[selector], name, selector)
		}
		of[selector] = name
	}
}
