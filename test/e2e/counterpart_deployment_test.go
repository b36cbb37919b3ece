package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// A Deployment that cannot have a ReplicaSet says so without having observed anything.
func TestReplicaSetsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		refuse func(t *testing.T, n *lab.Namespace) (allow func())
		words  string
	}{
		"by a quota": {func(t *testing.T, n *lab.Namespace) func() {
			startQuota(t, n, "none", "count/replicasets.apps=0")
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
				n.Apply(t, flavour("vanilla", "replicas: 2"))
				requireTrouble(t, n, "vanilla", v1alpha1.ReasonReplicaFailure, test.words)
				allow()
				requireMended(t, n, "vanilla", v1alpha1.ReasonReplicaFailure)
			})
			t.Run("of a rollout", func(t *testing.T) {
				t.Parallel()
				n := NewNamespace(t)
				n.Apply(t, flavour("vanilla", "replicas: 2", "image: registry.example/vanilla:1"))
				n.EventuallyReady(t, "vanilla")
				allow := test.refuse(t, n)
				edit(t, n, "vanilla", `"image": "registry.example/vanilla:2"`)
				requireTrouble(t, n, "vanilla", v1alpha1.ReasonReplicaFailure, test.words)
				if ice := n.Icecream(t, "vanilla"); ice.Status.AvailableReplicas != 2 || ice.Status.UpdatedReplicas != 0 {
					t.Errorf("what was there runs on, and the status is %+v", ice.Status)
				}
				allow()
				requireMended(t, n, "vanilla", v1alpha1.ReasonReplicaFailure)
			})
		})
	}
}

// startQuota makes a quota, and returns when it counts.
func startQuota(t *testing.T, n *lab.Namespace, name, hard string) {
	t.Helper()
	n.Kubectl(t, "create", "quota", name, "--hard="+hard)
	n.Eventually(t, "the quota counts", func(ctx context.Context) error {
		quota, err := n.Lab.Kube.CoreV1().ResourceQuotas(n.Name).Get(ctx, name, metav1.GetOptions{})
		if err == nil && len(quota.Status.Used) == 0 {
			return fmt.Errorf("its status is %+v", quota.Status)
		}
		return err
	})
}

// Somebody takes a Pod out of its ReplicaSet to look at what is wrong with it. It still
// has the Icecream's labels, and is not the Icecream's any more.
func TestPodThatIsTakenAsideForDebugging(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	c := n.StartController(t, "-icecream-stall-after=3s")
	n.Apply(t, flavour("vanilla", "replicas: 2"))
	n.EventuallyReady(t, "vanilla")
	aside := n.LivePods(t)[0]

	n.Kubectl(t, "label", "pod", aside.Name, "pod-template-hash-")
	n.Eventually(t, "another Pod takes its place", func(ctx context.Context) error {
		now, err := n.Pods().Get(ctx, aside.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if all := n.LivePods(t); metav1.GetControllerOf(now) != nil || len(all) != 3 || !allPodsReady(all) {
			return fmt.Errorf("it belongs to %v, and there are %v", now.OwnerReferences, identities(all))
		}
		return nil
	})
	atRest(t, n, "vanilla")
	requireWithoutAside := func() {
		t.Helper()
		eventuallyIdle(t, n, c)
		n.Steadily(t, "it is Ready, with its own two Pods", aMoment, func(context.Context) error {
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

	// Nothing that becomes of it matters to the Icecream.
	playKubelet(t, n, aside.Name, crashed)
	requireWithoutAside()
	n.Kubectl(t, "delete", "pod", aside.Name)
	requireWithoutAside()
	for _, event := range n.Events(t, "vanilla") {
		if event.Type == corev1.EventTypeWarning {
			t.Errorf("people were warned: %s: %s", event.Reason, event.Note)
		}
	}
}

// hold puts a finalizer on a Deployment, which keeps it from going. release takes it off.
func hold(t *testing.T, n *lab.Namespace, deployment string) (release func()) {
	t.Helper()
	patch := func(finalizers string) error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			_, err := n.Deployments().Patch(context.WithoutCancel(t.Context()), deployment, types.MergePatchType,
				[]byte(`{"metadata":{"finalizers":`+finalizers+`}}`), metav1.PatchOptions{})
			return err
		})
	}
	if err := patch(`["parlour.example/hold"]`); err != nil {
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
	t.Cleanup(release) // the namespace could not go either
	return release
}

// requireTerminating waits until an Icecream says that a Deployment is still going, and
// requires that this is neither a failure nor worth a warning.
func requireTerminating(t *testing.T, n *lab.Namespace, name, deployment string) {
	t.Helper()
	check := func(ice *v1alpha1.Icecream) error {
		ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Reason != v1alpha1.ReasonDeploymentTerminating || !strings.Contains(ready.Message, fmt.Sprintf("%q", deployment)) {
			return fmt.Errorf("its conditions are %+v", ice.Status.Conditions)
		}
		return nil
	}
	n.EventuallyIcecream(t, name, fmt.Sprintf("says that Deployment %q is going", deployment), check)
	n.Steadily(t, "it says so", 2*aMoment, func(context.Context) error { return check(n.Icecream(t, name)) })
	if got := kstatusOf(t, n, name); got != status.InProgressStatus {
		t.Errorf("deployment tools take it for %s", got)
	}
	for _, event := range n.Events(t, name) {
		if event.Type == corev1.EventTypeWarning {
			t.Errorf("people were warned: %s: %s", event.Reason, event.Note)
		}
	}
}

// A rename has come to its end when the old Deployment has.
func TestRenameOfADeploymentThatAFinalizerHolds(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, flavour("vanilla", "deploymentName: cone", "replicas: 2"))
	n.EventuallyReady(t, "vanilla")
	release := hold(t, n, "cone")
	n.Apply(t, flavour("vanilla", "deploymentName: cup", "replicas: 2"))
	requireTerminating(t, n, "vanilla", "cone")
	if ice := n.Icecream(t, "vanilla"); ice.Status.DeploymentName != "cup" || ice.Status.AvailableReplicas != 2 {
		t.Errorf("the status is %+v", ice.Status)
	}
	release()
	eventuallyOnly(t, n, "vanilla", "cup")
	requireMended(t, n, "vanilla", v1alpha1.ReasonDeploymentTerminating)
}

// Of somebody else's Deployment that is on its way out, the end is waited for.
func TestForeignDeploymentThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	kubectlMakes(t, n, "vanilla")
	release := hold(t, n, "vanilla")
	n.Kubectl(t, "delete", "deployment", "vanilla", "--wait=false")
	seen := watchIcecreams(t, n)
	n.Apply(t, flavour("vanilla", "replicas: 2"))
	requireTerminating(t, n, "vanilla", "vanilla")
	release()
	ice := n.EventuallyReady(t, "vanilla")
	if d := n.Deployment(t, "vanilla"); !metav1.IsControlledBy(d, ice) {
		t.Errorf("the Deployment is %+v", d.ObjectMeta)
	}
	seen.requireNeverStalled(t)
}

// Only a rollout that cannot go on is stalled. A paused Deployment replaces its Pods as
// any other does.
func TestDeploymentThatIsPausedAtRest(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, flavour("vanilla", "replicas: 2"))
	n.EventuallyReady(t, "vanilla")
	n.Kubectl(t, "rollout", "pause", "deployment/vanilla")
	n.Eventually(t, "the pause is known", func(context.Context) error {
		if d := n.Deployment(t, "vanilla"); d.Status.ObservedGeneration != d.Generation {
			return fmt.Errorf("the Deployment is %+v", d)
		}
		return nil
	})
	n.EventuallyReady(t, "vanilla")
	seen := watchIcecreams(t, n)

	// A container is started again, and takes its time.
	pod := n.LivePods(t)[0].Name
	playKubelet(t, n, pod, slow)
	n.EventuallyIcecream(t, "vanilla", "is in progress", func(ice *v1alpha1.Icecream) error {
		if !meta.IsStatusConditionTrue(ice.Status.Conditions, v1alpha1.ConditionReconciling) {
			return fmt.Errorf("its conditions are %+v", ice.Status.Conditions)
		}
		return nil
	})
	n.Steadily(t, "it is in progress", 2*aMoment, func(context.Context) error {
		if got := kstatusOf(t, n, "vanilla"); got != status.InProgressStatus {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
	playKubelet(t, n, pod, running)
	n.EventuallyReady(t, "vanilla")

	replacePods(t, n, "vanilla")
	n.Kubectl(t, "scale", "icecream/vanilla", "--replicas=3")
	eventuallyHasPods(t, n, "vanilla", 3)
	n.EventuallyReady(t, "vanilla")
	if !n.Deployment(t, "vanilla").Spec.Paused {
		t.Error("the Deployment is no longer paused")
	}
	seen.requireNeverStalled(t)
	for _, event := range n.Events(t, "vanilla") {
		if event.Type == corev1.EventTypeWarning {
			t.Errorf("people were warned: %s: %s", event.Reason, event.Note)
		}
	}
}
