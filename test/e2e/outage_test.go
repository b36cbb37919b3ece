package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// When the API server goes away while work is in progress, and comes back, the controller
// recovers on its own.
func TestAPIServerGoesAway(t *testing.T) {
	t.Parallel()
	l := NewLab(t, lab.Options{})
	c := l.StartController(t, "-icecream-stall-after=3s")
	n := l.NewNamespace(t)
	n.Controller = c

	const icecreams = 10
	specs := make([]v1alpha1.IcecreamSpec, icecreams)
	var users sync.WaitGroup
	for i := range icecreams {
		specs[i] = v1alpha1.IcecreamSpec{DeploymentName: icecreamName(i), Replicas: ptr.To[int32](1), Image: "registry.example/icecream:0"}
		users.Go(func() {
			ice := &v1alpha1.Icecream{ObjectMeta: metav1.ObjectMeta{Name: icecreamName(i)}, Spec: specs[i]}
			if _, err := n.Icecreams().Create(t.Context(), ice, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	users.Wait()
	outage(t, l, time.Second) // while most rollouts are in progress
	back := time.Now()
	n.Eventually(t, "all are Ready", func(ctx context.Context) error { return allReady(ctx, n, icecreams) })
	t.Logf("all were Ready %s after the API server was back", time.Since(back).Round(time.Millisecond))

	for i := range icecreams {
		specs[i].DeploymentName = icecreamName(i) + "-renamed"
		specs[i].Replicas = ptr.To[int32](2)
		patchIcecream(t, n, icecreamName(i), fmt.Sprintf(`{"spec":{"deploymentName":%q,"replicas":2}}`, specs[i].DeploymentName))
	}
	outage(t, l, 5*time.Second) // long enough for all watches to end
	back = time.Now()
	n.Eventually(t, "all are Ready again", func(ctx context.Context) error { return allReady(ctx, n, icecreams) })
	t.Logf("all were Ready again %s after the API server was back", time.Since(back).Round(time.Millisecond))
	n.Eventually(t, "the former Deployments are gone", func(context.Context) error {
		if all := n.AllDeployments(t); len(all) != icecreams {
			return fmt.Errorf("there are %d Deployments", len(all))
		}
		return nil
	})
	requireAsSpecified(t, n, specs)
}

// outage kills the API server and, after that long, starts it again.
func outage(t *testing.T, l *lab.Lab, while time.Duration) {
	t.Helper()
	if err := l.KillComponent(cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	time.Sleep(while)
	if err := l.StartComponent(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
}
