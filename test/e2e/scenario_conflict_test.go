package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// rivals makes two Icecreams that ask for one Deployment, and returns the one
// that came first.
func rivals(t *testing.T, n *lab.Namespace) *v1alpha1.Icecream {
	t.Helper()
	n.Apply(t, flavour("first", "deploymentName: scoop", "replicas: 2"))
	first := n.EventuallyReady(t, "first")
	n.Apply(t, flavour("second", "deploymentName: scoop", "replicas: 1", "image: registry.example/second:1"))
	n.EventuallyStalled(t, "second", v1alpha1.ReasonErrResourceExists)
	requireOneWarning(t, n, "second", v1alpha1.ReasonErrResourceExists, `Resource "scoop" already exists and is not managed by Icecream`)
	return first
}

// requireTakenOver waits until the second of two rivals has the Deployment.
func requireTakenOver(t *testing.T, n *lab.Namespace) {
	t.Helper()
	second := n.EventuallyReady(t, "second")
	scoop := n.Deployment(t, "scoop")
	if !metav1.IsControlledBy(scoop, second) || *scoop.Spec.Replicas != 1 || scoop.Spec.Template.Spec.Containers[0].Image != "registry.example/second:1" {
		t.Errorf("Deployment \"scoop\" is %+v\n%+v", scoop.ObjectMeta, scoop.Spec)
	}
	requireOneWarning(t, n, "second", v1alpha1.ReasonErrResourceExists, "scoop")
}

func TestFirstOfTwoKeepsTheDeployment(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	first := rivals(t, n)
	scoop := atRest(t, n, "scoop")

	// Whatever happens to either of them, it stays that way.
	edit(t, n, "second", `"replicas": 4`)
	n.EventuallyStalled(t, "second", v1alpha1.ReasonErrResourceExists)
	n.Steadily(t, "the first has its Deployment", aMoment, func(context.Context) error {
		if now := n.Deployment(t, "scoop"); now.ResourceVersion != scoop.ResourceVersion {
			return fmt.Errorf("it is %+v", now)
		}
		return nil
	})
	edit(t, n, "first", `"replicas": 3`)
	n.EventuallyIcecream(t, "first", "is Ready with three", func(ice *v1alpha1.Icecream) error {
		if ice.Status.Replicas != 3 {
			return fmt.Errorf("it has %d", ice.Status.Replicas)
		}
		return lab.IsReady(ice)
	})
	n.EventuallyStalled(t, "second", v1alpha1.ReasonErrResourceExists)
	now := n.Deployment(t, "scoop")
	if !metav1.IsControlledBy(now, first) || now.UID != scoop.UID || *now.Spec.Replicas != 3 {
		t.Errorf("Deployment \"scoop\" is %+v\n%+v", now.ObjectMeta, now.Spec)
	}
	second := n.Icecream(t, "second")
	if s := second.Status; s.DeploymentName != "" || s.Replicas != 0 || len(s.Nodes) != 0 {
		t.Errorf("the second has no Deployment, and its status is %+v", s)
	}
}

func TestSecondOfTwoTakesOverWhenTheFirstIsRenamed(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	rivals(t, n)
	n.Apply(t, flavour("first", "deploymentName: cone", "replicas: 2"))
	requireTakenOver(t, n)
	first := n.EventuallyReady(t, "first")
	if cone := n.Deployment(t, "cone"); !metav1.IsControlledBy(cone, first) {
		t.Errorf("Deployment \"cone\" is %+v", cone.ObjectMeta)
	}
}

func TestSecondOfTwoTakesOverWhenTheFirstIsDeleted(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	rivals(t, n)
	n.Kubectl(t, "delete", "icecream", "first")
	requireTakenOver(t, n)
}

// Two that want each other's name can both have it once one makes room.
func TestTwoSwapTheirDeployments(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, flavour("first", "deploymentName: cone"))
	n.Apply(t, flavour("second", "deploymentName: cup"))
	n.EventuallyReady(t, "first")
	n.EventuallyReady(t, "second")

	n.Apply(t, flavour("first", "deploymentName: cup"))
	n.Apply(t, flavour("second", "deploymentName: cone"))
	n.EventuallyStalled(t, "first", v1alpha1.ReasonErrResourceExists)
	n.EventuallyStalled(t, "second", v1alpha1.ReasonErrResourceExists)

	n.Apply(t, flavour("second", "deploymentName: bowl"))
	first := n.EventuallyReady(t, "first")
	n.EventuallyReady(t, "second")
	n.Apply(t, flavour("second", "deploymentName: cone"))
	second := n.EventuallyReady(t, "second")
	if cup, cone := n.Deployment(t, "cup"), n.Deployment(t, "cone"); !metav1.IsControlledBy(cup, first) || !metav1.IsControlledBy(cone, second) {
		t.Errorf("Deployment \"cup\" is %+v\nand \"cone\" is %+v", cup.ObjectMeta, cone.ObjectMeta)
	}
}

func TestForeignDeploymentIsNeverTouched(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	foreign := kubectlMakes(t, n, "scoop")
	n.Apply(t, flavour("vanilla", "deploymentName: scoop", "replicas: 3"))
	n.EventuallyStalled(t, "vanilla", v1alpha1.ReasonErrResourceExists)
	requireOneWarning(t, n, "vanilla", v1alpha1.ReasonErrResourceExists, `Resource "scoop" already exists and is not managed by Icecream`)
	requireShown(t, n, "vanilla", "False", v1alpha1.ReasonErrResourceExists)

	// Neither a look at the spec again nor its owner's life changes that.
	edit(t, n, "vanilla", `"image": "registry.example/vanilla:2"`)
	n.EventuallyStalled(t, "vanilla", v1alpha1.ReasonErrResourceExists)
	requireUntouched(t, n, foreign)
	n.Kubectl(t, "scale", "deployment/scoop", "--replicas=2")
	atRest(t, n, "scoop")
	n.EventuallyStalled(t, "vanilla", v1alpha1.ReasonErrResourceExists)
	if written := deploymentWrites(t, n, time.Time{}); len(written) > 0 {
		t.Errorf("the controller has written Deployments: %s", written)
	}

	n.Kubectl(t, "delete", "deployment", "scoop")
	ice := n.EventuallyReady(t, "vanilla")
	now := n.Deployment(t, "scoop")
	if now.UID == foreign.UID || !metav1.IsControlledBy(now, ice) {
		t.Errorf("the Deployment is %+v", now.ObjectMeta)
	}
}

// A controller that starts anew says nothing again, and does nothing.
func TestForeignDeploymentIsReportedOnceInTheLivesOfControllers(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	c := n.StartController(t, "-icecream-stall-after=3s")
	foreign := kubectlMakes(t, n, "scoop")
	n.Apply(t, flavour("vanilla", "deploymentName: scoop"))
	n.EventuallyStalled(t, "vanilla", v1alpha1.ReasonErrResourceExists)
	requireOneWarning(t, n, "vanilla", v1alpha1.ReasonErrResourceExists, "scoop")

	c.Stop(t)
	began := time.Now()
	c.Start(t)
	// What it does after it has seen a new Icecream, it does after it has seen
	// the old one.
	n.Apply(t, flavour("mint"))
	n.EventuallyReady(t, "mint")
	n.EventuallyStalled(t, "vanilla", v1alpha1.ReasonErrResourceExists)
	requireOneWarning(t, n, "vanilla", v1alpha1.ReasonErrResourceExists, "scoop")
	requireUntouched(t, n, foreign)
	if written := statusWrites(t, n, "vanilla", began); len(written) > 0 {
		t.Errorf("the controller has nothing new to report, and it was %s", written)
	}
}

// What looks like ours is not ours for its looks.
func TestDeploymentsThatOnlyLookLikeOurs(t *testing.T) {
	t.Parallel()
	for name, disguise := range map[string]func(t *testing.T, n *lab.Namespace, d *appsv1.Deployment){
		"of another controller": func(t *testing.T, n *lab.Namespace, d *appsv1.Deployment) {
			owner, err := n.Lab.Kube.CoreV1().ConfigMaps(n.Name).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			d.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: new(true)}}
		},
		"with another selector": func(_ *testing.T, _ *lab.Namespace, d *appsv1.Deployment) {
			d.Spec.Selector.MatchLabels["app"] = "scoop"
			d.Spec.Template.Labels["app"] = "scoop"
		},
		"with a selector by expression": func(_ *testing.T, _ *lab.Namespace, d *appsv1.Deployment) {
			d.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app.kubernetes.io/name", Operator: metav1.LabelSelectorOpExists}}
		},
		"managed by somebody else": func(_ *testing.T, _ *lab.Namespace, d *appsv1.Deployment) {
			d.Labels["app.kubernetes.io/managed-by"] = "helm"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)

			// Made by the controller, so that it has all the right labels.
			n.Apply(t, flavour("vanilla", "deploymentName: scoop"))
			n.EventuallyReady(t, "vanilla")
			ours := n.Deployment(t, "scoop")
			n.Kubectl(t, "delete", "icecream", "vanilla", "--cascade=foreground")
			requireNothingLeft(t, n)

			lookalike := &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Name: ours.Name, Labels: ours.Labels},
				Spec:       ours.Spec,
			}
			disguise(t, n, lookalike)
			if _, err := n.Deployments().Create(t.Context(), lookalike, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			foreign := atRest(t, n, "scoop")
			began := time.Now()
			n.Apply(t, flavour("vanilla", "deploymentName: scoop"))
			ice := n.EventuallyStalled(t, "vanilla", v1alpha1.ReasonErrResourceExists)
			if s := ice.Status; s.DeploymentName != "" || s.Replicas != 0 || len(s.Nodes) != 0 {
				t.Errorf("what runs there is not the Icecream's, and its status is %+v", s)
			}
			if now := n.Deployment(t, "scoop"); now.UID != foreign.UID || now.ResourceVersion != foreign.ResourceVersion {
				t.Errorf("the Deployment was %+v\nand is %+v", foreign, now)
			}
			if written := deploymentWrites(t, n, began); len(written) > 0 {
				t.Errorf("the controller has written it: %s", written)
			}
			n.Kubectl(t, "delete", "deployment", "scoop")
			n.EventuallyReady(t, "vanilla")
		})
	}
}
