package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// opponentManager is the field manager of the opponent.
const opponentManager = "tug-of-war"

// An opponent immediately undoes each change that the controller makes to a Deployment.
type opponent struct {
	moves atomic.Int64
	stop  func()
}

// startOpponent starts an opponent, which calls move after each change of the Deployment,
// until the test ends or stop is called. move reports whether it wrote the Deployment.
func startOpponent(t *testing.T, n *lab.Namespace, name string, move func(context.Context, *appsv1.Deployment) (bool, error)) *opponent {
	t.Helper()
	watcher, err := n.Deployments().Watch(context.WithoutCancel(t.Context()), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	o := &opponent{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var playing sync.WaitGroup
	o.stop = sync.OnceFunc(func() {
		cancel()
		watcher.Stop()
		playing.Wait()
	})
	t.Cleanup(o.stop)
	playing.Go(func() {
		for event := range watcher.ResultChan() {
			d, ok := event.Object.(*appsv1.Deployment)
			if !ok {
				return
			}
			moved, err := move(ctx, d)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil && !apierrors.IsConflict(err): // after a conflict, the newer version follows
				t.Errorf("the opponent failed to write: %v", err)
			case err == nil && moved:
				o.moves.Add(1)
			}
		}
	})
	return o
}

func TestSomebodyWhoTakesEveryRepairBack(t *testing.T) {
	t.Parallel()
	const while, most, fewest = 15 * time.Second, 8, 3
	const mostReports = 12 // more than most, because each move also replaces Pods
	for field, move := range map[string]func(n *lab.Namespace) func(context.Context, *appsv1.Deployment) (bool, error){
		"replicas": func(n *lab.Namespace) func(context.Context, *appsv1.Deployment) (bool, error) {
			return func(ctx context.Context, d *appsv1.Deployment) (bool, error) {
				if *d.Spec.Replicas == 3 {
					return false, nil
				}
				d.Spec.Replicas = ptr.To[int32](3)
				_, err := n.Deployments().Update(ctx, d, metav1.UpdateOptions{FieldManager: opponentManager})
				return true, err
			}
		},
		"image": func(n *lab.Namespace) func(context.Context, *appsv1.Deployment) (bool, error) {
			return func(ctx context.Context, d *appsv1.Deployment) (bool, error) {
				if d.Spec.Template.Spec.Containers[0].Image == "registry.example/theirs:1" {
					return false, nil
				}
				_, err := n.Deployments().Patch(ctx, d.Name, types.ApplyPatchType, []byte(`{"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": {
					"containers": [{"name": "icecream", "image": "registry.example/theirs:1"}]}}}}`),
					metav1.PatchOptions{FieldManager: opponentManager, Force: ptr.To(true)})
				return true, err
			}
		},
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			n := NewQuietNamespace(t)
			n.StartController(t)
			n.Apply(t, icecreamYAML("vanilla", "replicas: 2", "image: registry.example/vanilla:1"))
			n.EventuallyReady(t, "vanilla")

			began := time.Now()
			opponent := startOpponent(t, n, "vanilla", move(n))
			n.EventuallyIcecream(t, "vanilla", "names the opponent and the field", func(ice *v1alpha1.Icecream) error {
				ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady)
				if ready.Status != metav1.ConditionFalse || ready.Reason != v1alpha1.ReasonDeploymentContested || !containsAll(ready.Message, opponentManager, field) {
					return fmt.Errorf("condition Ready is %+v", ready)
				}
				if !meta.IsStatusConditionTrue(ice.Status.Conditions, v1alpha1.ConditionReconciling) {
					return fmt.Errorf("its conditions are %+v", ice.Status.Conditions)
				}
				return nil
			})
			time.Sleep(time.Until(began.Add(while)))
			took := time.Since(began)
			if writes := deploymentWrites(t, n, began); len(writes) < fewest || len(writes) > most {
				t.Errorf("in %s the controller made %s, want %d to %d", took, writes, fewest, most)
			}
			if writes := statusWrites(t, n, "vanilla", began); len(writes) > mostReports {
				t.Errorf("in %s the controller made %s, want no more than %d", took, writes, mostReports)
			}
			if moves := opponent.moves.Load(); moves < fewest {
				t.Errorf("in %s the opponent made %d moves", took, moves)
			}
			requireOneWarning(t, n, "vanilla", v1alpha1.ReasonDeploymentContested, opponentManager)
			requireKubectlShows(t, n, "vanilla", "False", v1alpha1.ReasonDeploymentContested)

			opponent.stop()
			n.Eventually(t, "the Deployment is repaired", func(context.Context) error {
				if d := n.Deployment(t, "vanilla"); *d.Spec.Replicas != 2 || d.Spec.Template.Spec.Containers[0].Image != "registry.example/vanilla:1" {
					return errors.New("it is still as the opponent left it")
				}
				return nil
			})
			requireRecovered(t, n, "vanilla", v1alpha1.ReasonDeploymentContested)
			requireOneWarning(t, n, "vanilla", v1alpha1.ReasonDeploymentContested, opponentManager)
		})
	}
}

// Occasional changes by others are not a fight. Each one is repaired at once, and the
// Deployment is not reported as contested.
func TestRepairsThatAreFarBetweenAreNoFight(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2"))
	n.EventuallyReady(t, "vanilla")
	for _, replicas := range []string{"3", "4"} {
		n.Kubectl(t, "scale", "deployment/vanilla", "--replicas="+replicas)
		n.Eventually(t, "the Deployment is repaired", func(context.Context) error {
			if d := n.Deployment(t, "vanilla"); *d.Spec.Replicas != 2 {
				return fmt.Errorf("it has %d replicas", *d.Spec.Replicas)
			}
			return nil
		})
		n.EventuallyReady(t, "vanilla")
	}
	for _, event := range n.Events(t, "vanilla") {
		if strings.Contains(event.Reason, v1alpha1.ReasonDeploymentContested) {
			t.Errorf("there is an event %s: %s", event.Reason, event.Note)
		}
	}
}
