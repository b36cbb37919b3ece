package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The garbage collector deletes an Icecream together with its Deployment. The order in
// which the controller's caches learn of the deletions is random, so there are several
// Icecreams.
func TestDeletionTakesEverythingAlong(t *testing.T) {
	t.Parallel()
	for _, cascade := range []string{"foreground", "background"} {
		t.Run(cascade, func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)
			icecreams := []string{"vanilla", "mint", "mango", "lemon", "cherry"}
			for _, name := range icecreams {
				n.Apply(t, icecreamYAML(name, "replicas: 2"))
			}
			for _, name := range icecreams {
				n.EventuallyReady(t, name)
			}

			began := time.Now()
			n.Kubectl(t, "delete", "icecreams", "--all", "--cascade="+cascade)
			requireNothingLeft(t, n)

			n.Steadily(t, "no Deployment is re-created", settleTime, func(context.Context) error {
				if left := n.AllDeployments(t); len(left) > 0 {
					return fmt.Errorf("Deployment %q exists", left[0].Name)
				}
				return nil
			})
			if written := deploymentWrites(t, n, began); len(written) > 0 {
				t.Errorf("the controller wrote Deployments of deleted Icecreams: %s", written)
			}
		})
	}
}

func TestOrphanedDeploymentIsAdoptedByTheNextOfTheName(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	vanilla := icecreamYAML("vanilla", "deploymentName: scoop", "replicas: 2", "image: registry.example/vanilla:1")
	n.Apply(t, vanilla)
	first := n.EventuallyReady(t, "vanilla")
	deployment, pods := n.Deployment(t, "scoop"), podUIDs(n.LivePods(t))

	began := time.Now()
	n.Kubectl(t, "delete", "icecream", "vanilla", "--cascade=orphan")
	n.Eventually(t, "the Deployment has no owner", func(context.Context) error {
		if owners := n.Deployment(t, "scoop").OwnerReferences; len(owners) > 0 {
			return fmt.Errorf("its owner is %s", owners[0].Name)
		}
		return nil
	})
	n.Steadily(t, "the Deployment and its Pods are left alone", settleTime, func(context.Context) error {
		if now := n.Deployment(t, "scoop"); now.UID != deployment.UID || len(now.OwnerReferences) > 0 {
			return fmt.Errorf("the Deployment is %+v", now.ObjectMeta)
		}
		if diff := cmp.Diff(pods, podUIDs(n.LivePods(t))); diff != "" {
			return fmt.Errorf("the Pods have changed (-before +now):\n%s", diff)
		}
		return nil
	})
	if written := deploymentWrites(t, n, began); len(written) > 0 {
		t.Errorf("the controller wrote the orphaned Deployment: %s", written)
	}

	n.Apply(t, vanilla)
	second := n.EventuallyReady(t, "vanilla")
	if second.UID == first.UID {
		t.Fatal("the Icecream was not re-created")
	}
	now := n.Deployment(t, "scoop")
	if now.UID != deployment.UID || now.Generation != deployment.Generation || !metav1.IsControlledBy(now, second) {
		t.Errorf("the Deployment was %+v\nand is now %+v", deployment.ObjectMeta, now.ObjectMeta)
	}
	if diff := cmp.Diff(pods, podUIDs(n.LivePods(t))); diff != "" {
		t.Errorf("the Pods have changed (-before +now):\n%s", diff)
	}
	eventuallyTold(t, n, "vanilla", `Adopted Deployment "scoop"`, 1)
	if written := steps(deploymentWrites(t, n, began)); !cmp.Equal(written, []string{"patch scoop"}) {
		t.Errorf("the adoption took these requests: %q", written)
	}
}

// An Icecream adopts an orphaned Deployment even if its own spec differs, and updates the
// Deployment accordingly.
func TestOrphanedDeploymentIsChangedByTheNextOfTheName(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "replicas: 1", "image: registry.example/vanilla:1", "resources: {limits: {cpu: 500m}}"))
	n.EventuallyReady(t, "vanilla")
	deployment := n.Deployment(t, "vanilla")
	n.Kubectl(t, "delete", "icecream", "vanilla", "--cascade=orphan")

	n.Apply(t, icecreamYAML("vanilla", "replicas: 2", "image: registry.example/vanilla:2"))
	n.EventuallyReady(t, "vanilla")
	now := n.Deployment(t, "vanilla")
	container := now.Spec.Template.Spec.Containers[0]
	if now.UID != deployment.UID || *now.Spec.Replicas != 2 || container.Image != "registry.example/vanilla:2" {
		t.Errorf("the Deployment is %+v\n%+v", now.ObjectMeta, now.Spec)
	}
	n.Eventually(t, "the former limits have been removed", func(context.Context) error {
		if limits := n.Deployment(t, "vanilla").Spec.Template.Spec.Containers[0].Resources.Limits; len(limits) > 0 {
			return fmt.Errorf("the limits are %v", limits)
		}
		return nil
	})
	n.EventuallyReady(t, "vanilla")
}

func TestOwnerReferenceIsPutBack(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2"))
	ice := n.EventuallyReady(t, "vanilla")
	deployment, pods := n.Deployment(t, "vanilla"), podUIDs(n.LivePods(t))

	patchDeployment(t, n, "vanilla", `[{"op": "remove", "path": "/metadata/ownerReferences"}]`)
	n.Eventually(t, "the Deployment has its owner reference", func(context.Context) error {
		if !metav1.IsControlledBy(n.Deployment(t, "vanilla"), ice) {
			return errors.New("the Icecream is not its controller")
		}
		return nil
	})
	eventuallyTold(t, n, "vanilla", `Adopted Deployment "vanilla"`, 1)
	n.EventuallyReady(t, "vanilla")
	now := n.Deployment(t, "vanilla")
	if diff := cmp.Diff(deployment.OwnerReferences, now.OwnerReferences); diff != "" || now.UID != deployment.UID {
		t.Errorf("the UID is %s and was %s; owner references (-before +now):\n%s", now.UID, deployment.UID, diff)
	}
	if diff := cmp.Diff(pods, podUIDs(n.LivePods(t))); diff != "" {
		t.Errorf("the Pods have changed (-before +now):\n%s", diff)
	}
}
