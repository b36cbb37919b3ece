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

// A namespace loses its contents in no particular order, and nothing new can be
// made in it, whatever its Icecreams still ask for.
func TestNamespaceIsDeletedWithItsIcecreams(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	kubectlMakes(t, n, "foreign")
	for i := range 5 {
		n.Apply(t, flavour(fmt.Sprintf("ready-%d", i), "replicas: 2"))
	}
	n.Apply(t, flavour("blocked", "deploymentName: foreign"))
	n.Apply(t, flavour("crashing", "image: registry.example/crash:1"))
	for i := range 5 {
		n.EventuallyReady(t, fmt.Sprintf("ready-%d", i))
	}
	n.EventuallyStalled(t, "blocked", v1alpha1.ReasonErrResourceExists)
	n.EventuallyStalled(t, "crashing", v1alpha1.ReasonCrashLoopBackOff)
	// One that is on its way: its Pods will never be ready.
	n.Apply(t, flavour("waiting", "replicas: 3", "image: registry.example/never-ready:1"))
	n.Eventually(t, "it has its Deployment", func(ctx context.Context) error {
		_, err := n.Deployments().Get(ctx, "waiting", metav1.GetOptions{})
		return err
	})

	began := time.Now()
	n.Kubectl(t, "delete", "namespace", n.Name, "--wait=false")
	n.Eventually(t, "the namespace is gone", func(ctx context.Context) error {
		left, err := n.Lab.Kube.CoreV1().Namespaces().Get(ctx, n.Name, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("its conditions are %+v", left.Status.Conditions)
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})

	// Each Icecream may have tried a few times to have its Deployment again.
	made := requestsOf(t, n).Since(began)
	if most := 8 * 30; len(made) > most {
		t.Errorf("the end of 8 Icecreams took more than %d requests: %s", most, made)
	}
	if accepted := made.Resource("deployments").Writes().Where(isAccepted); len(accepted) > 0 {
		t.Errorf("the controller has written Deployments: %s", accepted)
	}
	for _, line := range n.Controller.Errors() {
		if strings.Contains(line, n.Name) {
			t.Errorf("the log says: %s", line)
		}
	}
	time.Sleep(aMoment) // until the controller has heard of it, too
	over := time.Now()
	time.Sleep(aMoment)
	if later := requestsOf(t, n).Since(over).Where(isNotEvent); len(later) > 0 {
		t.Errorf("the namespace is gone, and the controller made %s", later)
	}
}
