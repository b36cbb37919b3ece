package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// A Deployment whose ReplicaSet is refused reports that in its status, although its
// observedGeneration is not up to date yet.
func TestReplicaSetsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		refuse func(t *testing.T, n *lab.Namespace) (allow func())
		words  string
	}{
		"by a quota": {func(t *testing.T, n *lab.Namespace) func() {
			n.StartQuota(t, "none", "count/replicasets.apps=0")
			return func() { n.Kubectl(t, "delete", "quota", "none") }
		}, "exceeded quota: none"},
		"by a webhook": {func(t *testing.T, n *lab.Namespace) func() {
			webhook := n.StartWebhook(t, "replicasets", func(request *admissionv1.AdmissionRequest) error {
				if request.Operation != admissionv1.Create {
					return nil
				}
				return errors.New("no cone is large enough")
			})
			return func() { webhook.Stop(t) }
		}, "no cone is large enough"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("of a new Deployment", func(t *testing.T) {
				t.Parallel()
				n := NewNamespace(t)
				allow := test.refuse(t, n)
				n.Apply(t, icecreamYAML("vanilla", "replicas: 2"))
				requireProblem(t, n, "vanilla", v1alpha1.ReasonReplicaFailure, test.words)
				allow()
				requireRecovered(t, n, "vanilla", v1alpha1.ReasonReplicaFailure)
			})
			t.Run("of a rollout", func(t *testing.T) {
				t.Parallel()
				n := NewNamespace(t)
				n.Apply(t, icecreamYAML("vanilla", "replicas: 2", "image: registry.example/vanilla:1"))
				n.EventuallyReady(t, "vanilla")
				allow := test.refuse(t, n)
				edit(t, n, "vanilla", `"image": "registry.example/vanilla:2"`)
				requireProblem(t, n, "vanilla", v1alpha1.ReasonReplicaFailure, test.words)
				if ice := n.Icecream(t, "vanilla"); ice.Status.AvailableReplicas != 2 || ice.Status.UpdatedReplicas != 0 {
					t.Errorf("the old Pods still run, but the status is %+v", ice.Status)
				}
				allow()
				requireRecovered(t, n, "vanilla", v1alpha1.ReasonReplicaFailure)
			})
		})
	}
}

// A user takes a Pod out of its ReplicaSet in order to debug it. The Pod keeps the
// Icecream's labels but no longer belongs to the Icecream.
func TestPodThatIsTakenAsideForDebugging(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	c := n.StartController(t, "-icecream-stall-after=3s")
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2"))
	n.EventuallyReady(t, "vanilla")
	aside := n.LivePods(t)[0]

	n.Kubectl(t, "label", "pod", aside.Name, "pod-template-hash-")
	n.Eventually(t, "another Pod takes its place", func(ctx context.Context) error {
		now, err := n.Pods().Get(ctx, aside.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if all := n.LivePods(t); metav1.GetControllerOf(now) != nil || len(all) != 3 || !allPodsReady(all) {
			return fmt.Errorf("its owners are %v, and the Pods are %v", now.OwnerReferences, podUIDs(all))
		}
		return nil
	})
	eventuallySettled(t, n, "vanilla")
	requireWithoutAside := func() {
		t.Helper()
		eventuallyIdle(t, n, c)
		n.Steadily(t, "it is Ready with its own two Pods", settleTime, func(context.Context) error {
			ice := n.Icecream(t, "vanilla")
			var pods int32
			for _, node := range ice.Status.Nodes {
				pods += node.Pods
			}
			if pods != 2 {
				return fmt.Errorf("its nodes are %+v", ice.Status.Nodes)
			}
			return lab.IsReady(ice)
		})
	}
	requireWithoutAside()

	// Whatever happens to that Pod does not matter to the Icecream.
	reportAsKubelet(t, n, aside.Name, crashed)
	requireWithoutAside()
	n.Kubectl(t, "delete", "pod", aside.Name)
	requireWithoutAside()
	requireNoWarnings(t, n, "vanilla")
}

// holdWithFinalizer adds a finalizer to a Deployment, which delays its deletion until
// release removes the finalizer.
func holdWithFinalizer(t *testing.T, n *lab.Namespace, deployment string) (release func()) {
	t.Helper()
	patch := func(finalizers string) error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			_, err := n.Deployments().Patch(context.WithoutCancel(t.Context()), deployment, types.MergePatchType,
				[]byte(`{"metadata":{"finalizers":`+finalizers+`}}`), metav1.PatchOptions{})
			return err
		})
	}
	if err := patch(`["parlor.example/hold"]`); err != nil {
		t.Fatal(err)
	}
	isHeld := true
	release = func() {
		if isHeld {
			isHeld = false
			if err := patch(`null`); err != nil {
				t.Errorf("releasing Deployment %q: %v", deployment, err)
			}
		}
	}
	t.Cleanup(release) // otherwise the namespace could not be deleted either
	return release
}

// requireTerminating waits until an Icecream says that a Deployment is terminating, and
// requires that this is neither a failure nor a reason for a Warning.
func requireTerminating(t *testing.T, n *lab.Namespace, name, deployment string) {
	t.Helper()
	check := func(ice *v1alpha1.Icecream) error {
		ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Reason != v1alpha1.ReasonDeploymentTerminating || !strings.Contains(ready.Message, fmt.Sprintf("%q", deployment)) {
			return fmt.Errorf("its conditions are %+v", ice.Status.Conditions)
		}
		return nil
	}
	n.EventuallyIcecream(t, name, fmt.Sprintf("says that Deployment %q is terminating", deployment), check)
	n.Steadily(t, "it keeps saying so", 2*settleTime, func(context.Context) error { return check(n.Icecream(t, name)) })
	if got := kstatusOf(t, n, name); got != status.InProgressStatus {
		t.Errorf("kstatus is %s, want InProgress", got)
	}
	requireNoWarnings(t, n, name)
}

// A rename is complete only when the old Deployment is gone.
func TestRenameOfADeploymentThatAFinalizerHolds(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cone", "replicas: 2"))
	n.EventuallyReady(t, "vanilla")
	release := holdWithFinalizer(t, n, "cone")
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", "replicas: 2"))
	requireTerminating(t, n, "vanilla", "cone")
	if ice := n.Icecream(t, "vanilla"); ice.Status.DeploymentName != "cup" || ice.Status.AvailableReplicas != 2 {
		t.Errorf("the status is %+v", ice.Status)
	}
	release()
	eventuallyOnlyDeployments(t, n, "vanilla", "cup")
	requireRecovered(t, n, "vanilla", v1alpha1.ReasonDeploymentTerminating)
}

// If someone else's Deployment is being deleted, the controller waits until it is gone.
func TestForeignDeploymentThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	createForeignDeployment(t, n, "vanilla")
	release := holdWithFinalizer(t, n, "vanilla")
	n.Kubectl(t, "delete", "deployment", "vanilla", "--wait=false")
	seen := watchIcecreams(t, n)
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2"))
	requireTerminating(t, n, "vanilla", "vanilla")
	release()
	ice := n.EventuallyReady(t, "vanilla")
	if d := n.Deployment(t, "vanilla"); !metav1.IsControlledBy(d, ice) {
		t.Errorf("the Deployment is %+v", d.ObjectMeta)
	}
	seen.requireNeverStalled(t)
}

// A pause is a problem only if it stops a rollout. A paused Deployment still replaces its
// Pods as any other does.
func TestDeploymentThatIsPausedAtRest(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2"))
	n.EventuallyReady(t, "vanilla")
	n.Kubectl(t, "rollout", "pause", "deployment/vanilla")
	n.Eventually(t, "the Deployment controller has observed the pause", func(context.Context) error {
		if d := n.Deployment(t, "vanilla"); d.Status.ObservedGeneration != d.Generation {
			return fmt.Errorf("the Deployment is %+v", d)
		}
		return nil
	})
	n.EventuallyReady(t, "vanilla")
	seen := watchIcecreams(t, n)

	// A container restarts, and takes its time to become ready.
	pod := n.LivePods(t)[0].Name
	reportAsKubelet(t, n, pod, notReady)
	n.EventuallyIcecream(t, "vanilla", "is in progress", func(ice *v1alpha1.Icecream) error {
		if !meta.IsStatusConditionTrue(ice.Status.Conditions, v1alpha1.ConditionReconciling) {
			return fmt.Errorf("its conditions are %+v", ice.Status.Conditions)
		}
		return nil
	})
	n.Steadily(t, "it stays in progress", 2*settleTime, func(context.Context) error {
		if got := kstatusOf(t, n, "vanilla"); got != status.InProgressStatus {
			return fmt.Errorf("kstatus is %s", got)
		}
		return nil
	})
	reportAsKubelet(t, n, pod, running)
	n.EventuallyReady(t, "vanilla")

	replacePods(t, n, "vanilla")
	n.Kubectl(t, "scale", "icecream/vanilla", "--replicas=3")
	eventuallyHasPods(t, n, "vanilla", 3)
	n.EventuallyReady(t, "vanilla")
	if !n.Deployment(t, "vanilla").Spec.Paused {
		t.Error("the Deployment is no longer paused")
	}
	seen.requireNeverStalled(t)
	requireNoWarnings(t, n, "vanilla")
}
