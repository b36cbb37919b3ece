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

// createRivals creates two Icecreams that name the same Deployment. It returns the first
// one, which owns the Deployment.
func createRivals(t *testing.T, n *lab.Namespace) *v1alpha1.Icecream {
	t.Helper()
	n.Apply(t, icecreamYAML("first", "deploymentName: scoop", "replicas: 2"))
	first := n.EventuallyReady(t, "first")
	n.Apply(t, icecreamYAML("second", "deploymentName: scoop", "replicas: 1", "image: registry.example/second:1"))
	n.EventuallyStalled(t, "second", v1alpha1.ReasonErrResourceExists)
	requireOneWarning(t, n, "second", v1alpha1.ReasonErrResourceExists, `Resource "scoop" already exists and is managed by Icecream "first"`)
	return first
}

// requireTakenOver waits until the second of two rivals is Ready, and requires that it
// owns the Deployment.
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
	first := createRivals(t, n)
	scoop := eventuallySettled(t, n, "scoop")

	// Edits of either Icecream leave the Deployment with the first one.
	edit(t, n, "second", `"replicas": 4`)
	n.EventuallyStalled(t, "second", v1alpha1.ReasonErrResourceExists)
	n.Steadily(t, "the Deployment of the first does not change", settleTime, func(context.Context) error {
		if now := n.Deployment(t, "scoop"); now.ResourceVersion != scoop.ResourceVersion {
			return fmt.Errorf("it is %+v", now)
		}
		return nil
	})
	edit(t, n, "first", `"replicas": 3`)
	n.EventuallyIcecream(t, "first", "is Ready with three Pods", func(ice *v1alpha1.Icecream) error {
		if ice.Status.Replicas != 3 {
			return fmt.Errorf("it has %d Pods", ice.Status.Replicas)
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
		t.Errorf("the second has no Deployment, but its status is %+v", s)
	}
}

func TestSecondOfTwoTakesOverWhenTheFirstIsRenamed(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	createRivals(t, n)
	n.Apply(t, icecreamYAML("first", "deploymentName: cone", "replicas: 2"))
	requireTakenOver(t, n)
	first := n.EventuallyReady(t, "first")
	if cone := n.Deployment(t, "cone"); !metav1.IsControlledBy(cone, first) {
		t.Errorf("Deployment \"cone\" is %+v", cone.ObjectMeta)
	}
}

func TestSecondOfTwoTakesOverWhenTheFirstIsDeleted(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	createRivals(t, n)
	n.Kubectl(t, "delete", "icecream", "first")
	requireTakenOver(t, n)
}

// Two Icecreams can swap the names of their Deployments once one of them has moved to a
// third name.
func TestTwoSwapTheirDeployments(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("first", "deploymentName: cone"))
	n.Apply(t, icecreamYAML("second", "deploymentName: cup"))
	n.EventuallyReady(t, "first")
	n.EventuallyReady(t, "second")

	n.Apply(t, icecreamYAML("first", "deploymentName: cup"))
	n.Apply(t, icecreamYAML("second", "deploymentName: cone"))
	n.EventuallyStalled(t, "first", v1alpha1.ReasonErrResourceExists)
	n.EventuallyStalled(t, "second", v1alpha1.ReasonErrResourceExists)

	n.Apply(t, icecreamYAML("second", "deploymentName: bowl"))
	first := n.EventuallyReady(t, "first")
	n.EventuallyReady(t, "second")
	n.Apply(t, icecreamYAML("second", "deploymentName: cone"))
	second := n.EventuallyReady(t, "second")
	if cup, cone := n.Deployment(t, "cup"), n.Deployment(t, "cone"); !metav1.IsControlledBy(cup, first) || !metav1.IsControlledBy(cone, second) {
		t.Errorf("Deployment \"cup\" is %+v\nand \"cone\" is %+v", cup.ObjectMeta, cone.ObjectMeta)
	}
}

func TestForeignDeploymentIsNeverTouched(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	foreign := createForeignDeployment(t, n, "scoop")
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: scoop", "replicas: 3"))
	n.EventuallyStalled(t, "vanilla", v1alpha1.ReasonErrResourceExists)
	requireOneWarning(t, n, "vanilla", v1alpha1.ReasonErrResourceExists, `Resource "scoop" already exists and is not managed by Icecream`)
	requireKubectlShows(t, n, "vanilla", "False", v1alpha1.ReasonErrResourceExists)

	// Neither an edit of the Icecream nor a change of the Deployment makes a difference.
	edit(t, n, "vanilla", `"image": "registry.example/vanilla:2"`)
	n.EventuallyStalled(t, "vanilla", v1alpha1.ReasonErrResourceExists)
	requireUntouched(t, n, foreign)
	n.Kubectl(t, "scale", "deployment/scoop", "--replicas=2")
	eventuallySettled(t, n, "scoop")
	n.EventuallyStalled(t, "vanilla", v1alpha1.ReasonErrResourceExists)
	if written := deploymentWrites(t, n, time.Time{}); len(written) > 0 {
		t.Errorf("the controller wrote Deployments: %s", written)
	}

	n.Kubectl(t, "delete", "deployment", "scoop")
	ice := n.EventuallyReady(t, "vanilla")
	now := n.Deployment(t, "scoop")
	if now.UID == foreign.UID || !metav1.IsControlledBy(now, ice) {
		t.Errorf("the Deployment is %+v", now.ObjectMeta)
	}
}

// A controller that has been restarted neither repeats the Warning nor writes anything.
func TestForeignDeploymentIsReportedOnceInTheLivesOfControllers(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	c := n.StartController(t, "-icecream-stall-after=3s")
	foreign := createForeignDeployment(t, n, "scoop")
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: scoop"))
	n.EventuallyStalled(t, "vanilla", v1alpha1.ReasonErrResourceExists)
	requireOneWarning(t, n, "vanilla", v1alpha1.ReasonErrResourceExists, "scoop")

	c.Stop(t)
	began := time.Now()
	c.Start(t)
	// The controller looks at existing Icecreams first. Once the new one is Ready, it has
	// therefore looked at the old one.
	n.Apply(t, icecreamYAML("mint"))
	n.EventuallyReady(t, "mint")
	n.EventuallyStalled(t, "vanilla", v1alpha1.ReasonErrResourceExists)
	requireOneWarning(t, n, "vanilla", v1alpha1.ReasonErrResourceExists, "scoop")
	requireUntouched(t, n, foreign)
	if written := statusWrites(t, n, "vanilla", began); len(written) > 0 {
		t.Errorf("the controller had nothing new to report, but it made %s", written)
	}
}

// The controller does not adopt a Deployment only because it has the right labels.
func TestDeploymentsThatOnlyLookLikeOurs(t *testing.T) {
	t.Parallel()
	for name, disguise := range map[string]func(t *testing.T, n *lab.Namespace, d *appsv1.Deployment){
		"owned by another controller": func(t *testing.T, n *lab.Namespace, d *appsv1.Deployment) {
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
		"with a selector expression": func(_ *testing.T, _ *lab.Namespace, d *appsv1.Deployment) {
			d.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app.kubernetes.io/name", Operator: metav1.LabelSelectorOpExists}}
		},
		"labeled as managed by another tool": func(_ *testing.T, _ *lab.Namespace, d *appsv1.Deployment) {
			d.Labels["app.kubernetes.io/managed-by"] = "helm"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)

			// The controller creates the original, so that the lookalike has all the
			// right labels.
			n.Apply(t, icecreamYAML("vanilla", "deploymentName: scoop"))
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
			foreign := eventuallySettled(t, n, "scoop")
			began := time.Now()
			n.Apply(t, icecreamYAML("vanilla", "deploymentName: scoop"))
			ice := n.EventuallyStalled(t, "vanilla", v1alpha1.ReasonErrResourceExists)
			if s := ice.Status; s.DeploymentName != "" || s.Replicas != 0 || len(s.Nodes) != 0 {
				t.Errorf("the Deployment is not the Icecream's, but the status is %+v", s)
			}
			if now := n.Deployment(t, "scoop"); now.UID != foreign.UID || now.ResourceVersion != foreign.ResourceVersion {
				t.Errorf("the Deployment was %+v\nand is now %+v", foreign, now)
			}
			if written := deploymentWrites(t, n, began); len(written) > 0 {
				t.Errorf("the controller wrote it: %s", written)
			}
			n.Kubectl(t, "delete", "deployment", "scoop")
			n.EventuallyReady(t, "vanilla")
		})
	}
}
