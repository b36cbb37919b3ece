package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// The contents of a namespace are deleted in no particular order. Meanwhile nothing can
// be created in it, even if its Icecreams still need it.
func TestNamespaceIsDeletedWithItsIcecreams(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	createForeignDeployment(t, n, "foreign")
	for i := range 5 {
		n.Apply(t, icecreamYAML(fmt.Sprintf("ready-%d", i), "replicas: 2"))
	}
	n.Apply(t, icecreamYAML("blocked", "deploymentName: foreign"))
	n.Apply(t, icecreamYAML("crashing", "image: registry.example/crash:1"))
	for i := range 5 {
		n.EventuallyReady(t, fmt.Sprintf("ready-%d", i))
	}
	n.EventuallyStalled(t, "blocked", v1alpha1.ReasonErrResourceExists)
	n.EventuallyStalled(t, "crashing", v1alpha1.ReasonCrashLoopBackOff)
	// The rollout of this one is in progress: its Pods never become ready.
	n.Apply(t, icecreamYAML("waiting", "replicas: 3", "image: registry.example/never-ready:1"))
	eventuallyHasDeployment(t, n, "waiting")

	began := time.Now()
	n.Kubectl(t, "delete", "namespace", n.Name, "--wait=false")
	n.Eventually(t, "the namespace is gone", func(ctx context.Context) error {
		left, err := n.Lab.Kube.CoreV1().Namespaces().Get(ctx, n.Name, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("it still exists, with the conditions %+v", left.Status.Conditions)
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})

	// The controller may have tried a few times to re-create each Deployment.
	made := requestsOf(t, n).Since(began)
	if most := 8 * 30; len(made) > most {
		t.Errorf("the deletion of 8 Icecreams took more than %d requests: %s", most, made)
	}
	if accepted := made.Resource("deployments").Writes().Where(isAccepted); len(accepted) > 0 {
		t.Errorf("the controller wrote Deployments: %s", accepted)
	}
	for _, line := range n.Controller.Errors() {
		if strings.Contains(line, n.Name) {
			t.Errorf("the log has an error about the namespace: %s", line)
		}
	}
	time.Sleep(settleTime) // until the controller's caches show it, too
	gone := time.Now()
	time.Sleep(settleTime)
	if later := requestsOf(t, n).Since(gone).Where(isNotEvent); len(later) > 0 {
		t.Errorf("after the namespace was gone, the controller made %s", later)
	}
}
