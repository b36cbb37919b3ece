package icecream

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/apply"
	"nicoleh.io/k8s-controller/pkg/kit/difftest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// specs are Icecreams that lead to different Deployments, by the name of the
// golden file.
var specs = map[string]*v1alpha1.Icecream{
	"plain": newIcecream(),
	"defaults": newIcecream(func(ice *v1alpha1.Icecream) {
		ice.Spec.Replicas = nil
	}),
	"scaled-to-zero": newIcecream(func(ice *v1alpha1.Icecream) {
		ice.Spec.Replicas = ptr.To[int32](0)
	}),
	"resources": newIcecream(func(ice *v1alpha1.Icecream) {
		ice.Spec.Resources = v1alpha1.IcecreamResources{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("0.1"), "memory": resource.MustParse("1024Mi")},
			Limits:   corev1.ResourceList{"memory": resource.MustParse("2Gi"), "example.com/scoop": resource.MustParse("1")},
			Claims:   []corev1.ResourceClaim{{Name: "freezer"}, {Name: "mixer", Request: "fast"}},
		}
	}),
	"long-names": newIcecream(calls(strings.Repeat("waffle.", 28)+"cone"), func(ice *v1alpha1.Icecream) {
		ice.Name = strings.Repeat("sprinkles-", 20)[:199] + "s"
	}),
}

// The Deployments have exactly these fields.
func TestBuiltDeployments(t *testing.T) {
	for name, ice := range specs {
		t.Run(name, func(t *testing.T) {
			raw, err := apply.Child{Resource: Deployments, Want: desired(ice), UID: "uid-of-sundae-deployment"}.Patch()
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.JSONToYAML(raw)
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
			difftest.Equal(t, golden+", or run with -update", withSortedKeys(t, want), string(got))
		})
	}
}

// withSortedKeys returns YAML with its keys in order. In a fork, a file that was made with other
// names may have them in another one.
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

// What the API server adds to what was asked for is no difference to repair.
func TestDefaultsOfTheServerAreNoDifference(t *testing.T) {
	for name, ice := range specs {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			created := deploymentOf(s.carryOut(creates(ice)))
			if drift := fieldsIn(created, ice); drift != "" {
				t.Errorf("it differs after it was created: %s", drift)
			}
			applied := deploymentOf(s.carryOut(applies(ice, created.UID)))
			if drift := fieldsIn(applied, ice); drift != "" {
				t.Errorf("it differs after it was applied: %s", drift)
			}
		})
	}
}

func TestDrift(t *testing.T) {
	tests := []struct {
		name string
		ice  *v1alpha1.Icecream
		edit func(*appsv1.Deployment)
		want string // fields
	}{{
		name: "untouched",
		edit: func(*appsv1.Deployment) {},
	}, {
		name: "somebody scaled it",
		edit: func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](5) },
		want: `spec.replicas`,
	}, {
		name: "somebody changed the image",
		edit: func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "registry.example/mud:1" },
		want: `spec.template.spec.containers[name="icecream"].image`,
	}, {
		name: "somebody took our container away",
		edit: func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers = nil },
		want: `spec.template.spec.containers`,
	}, {
		name: "somebody took a label of ours away",
		edit: func(d *appsv1.Deployment) { delete(d.Labels, LabelIcecream) },
		want: `metadata.labels.controller.nicoleh.io/icecream`,
	}, {
		name: "somebody changed the Pods' annotation of ours",
		edit: func(d *appsv1.Deployment) { d.Spec.Template.Annotations[AnnotationSpecHash] = "melted" },
		want: `spec.template.metadata.annotations.controller.nicoleh.io/spec-hash`,
	}, {
		name: "somebody allowed privilege escalation",
		edit: func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = ptr.To(true)
		},
		want: `spec.template.spec.containers[name="icecream"].securityContext.allowPrivilegeEscalation`,
	}, {
		name: "somebody dropped fewer capabilities",
		edit: func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities.Drop = []corev1.Capability{"NET_RAW"}
		},
		want: `spec.template.spec.containers[name="icecream"].securityContext.capabilities.drop`,
	}, {
		name: "somebody dropped capabilities besides ours",
		edit: func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities.Drop = []corev1.Capability{"ALL", "NET_RAW"}
		},
		want: `spec.template.spec.containers[name="icecream"].securityContext.capabilities.drop`, // an atomic list
	}, {
		name: "somebody took the owner reference's block away",
		edit: func(d *appsv1.Deployment) { d.OwnerReferences[0].BlockOwnerDeletion = nil },
		want: `metadata.ownerReferences[uid="uid-of-sundae"].blockOwnerDeletion`,
	}, {
		name: "another owner besides us",
		edit: func(d *appsv1.Deployment) {
			d.OwnerReferences = append([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "menu", UID: "menu"}}, d.OwnerReferences...)
		},
	}, {
		name: "labels and annotations of others",
		edit: func(d *appsv1.Deployment) {
			d.Labels["team"] = "parlor"
			d.Annotations = map[string]string{"deployment.kubernetes.io/revision": "3"}
			d.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] = "2026-07-01T12:00:00Z"
			d.Spec.Template.Labels["mesh"] = "on"
		},
	}, {
		name: "a sidecar before our container",
		edit: func(d *appsv1.Deployment) {
			pod := &d.Spec.Template.Spec
			pod.Containers = append([]corev1.Container{{Name: "sidecar", Image: "registry.example/mesh:1"}}, pod.Containers...)
			pod.InitContainers = []corev1.Container{{Name: "init"}}
			pod.Volumes = []corev1.Volume{{Name: "mesh"}}
		},
	}, {
		name: "environment and probes added to our container",
		edit: func(d *appsv1.Deployment) {
			c := &d.Spec.Template.Spec.Containers[0]
			c.Env = []corev1.EnvVar{{Name: "FLAVOR", Value: "vanilla"}}
			c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1}
			c.SecurityContext.ReadOnlyRootFilesystem = ptr.To(true)
		},
	}, {
		name: "a limit that we did not ask for",
		edit: func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1")}
		},
	}, {
		name: "a request set lower",
		ice:  specs["resources"],
		edit: func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1m")
		},
		want: `spec.template.spec.containers[name="icecream"].resources.requests.cpu`,
	}, {
		name: "the same quantity in other words",
		ice:  specs["resources"],
		edit: func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("100m")
			d.Spec.Template.Spec.Containers[0].Resources.Requests["memory"] = resource.MustParse("1Gi")
		},
	}, {
		name: "a claim points to another request",
		ice:  specs["resources"],
		edit: func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Resources.Claims[1].Request = "slow" },
		want: `spec.template.spec.containers[name="icecream"].resources.claims[name="mixer"].request`,
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ice := tt.ice
			if ice == nil {
				ice = newIcecream()
			}
			live := made(t, ice)
			tt.edit(live)
			if got := fieldsIn(live, ice); got != tt.want {
				t.Errorf("drift in %q, want %q", got, tt.want)
			}
		})
	}
}

// fieldsIn are the fields of live that are not as the Icecream asks for.
func fieldsIn(live *appsv1.Deployment, ice *v1alpha1.Icecream) string {
	return driftOf(Decision{Children: []apply.Child{owner.Compare(apply.Child{Resource: Deployments, Want: desired(ice)}, live)}})
}

// driftOf are the fields that a decision is to repair.
func driftOf(d Decision) string {
	var fields []string
	for _, f := range d.Drift() {
		fields = append(fields, f.Field)
	}
	return strings.Join(fields, ", ")
}

// Two Deployments of one Icecream must never select each other's Pods, nor those
// of another Icecream.
func TestSelectorsDoNotOverlap(t *testing.T) {
	other := newIcecream(func(ice *v1alpha1.Icecream) { ice.Name = "split" })
	seen := map[string]string{}
	for _, ice := range []*v1alpha1.Icecream{newIcecream(), newIcecream(calls("cone")), other, newIcecream(calls("split"))} {
		text := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: selector(ice, DeploymentName(ice))})
		if before, ok := seen[text]; ok {
			t.Errorf("%s and %s/%s share the selector %s", before, ice.Name, DeploymentName(ice), text)
		}
		seen[text] = ice.Name + "/" + DeploymentName(ice)
	}
}

func TestIsRolledOut(t *testing.T) {
	tests := []struct {
		name string
		edit func(*appsv1.Deployment)
		want bool
	}{
		{"every Pod is available", func(*appsv1.Deployment) {}, true},
		{"scaled to zero", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0); rolledOut(d) }, true},
		{"one is not available", func(d *appsv1.Deployment) { d.Status.AvailableReplicas-- }, false},
		{"one is of an older template", func(d *appsv1.Deployment) { d.Status.UpdatedReplicas-- }, false},
		{"an older one is left over", func(d *appsv1.Deployment) { d.Status.Replicas++ }, false},
		{"the status is of an older spec", func(d *appsv1.Deployment) { d.Generation++ }, false},
		{"the status is empty", func(d *appsv1.Deployment) { d.Status = appsv1.DeploymentStatus{} }, false},
		{"it is being deleted", func(d *appsv1.Deployment) { d.DeletionTimestamp = ptr.To(metav1.NewTime(now)) }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := made(t, newIcecream())
			tt.edit(d)
			if got := isRolledOut(d); got != tt.want {
				t.Errorf("isRolledOut = %t, want %t", got, tt.want)
			}
		})
	}
}
