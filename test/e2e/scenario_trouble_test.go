package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// requireKubectlShows requires that kubectl get shows this value of Ready and this reason.
func requireKubectlShows(t *testing.T, n *lab.Namespace, name, ready, reason string) {
	t.Helper()
	line := strings.Fields(n.Kubectl(t, "get", "icecream", name, "--no-headers"))
	// NAME READY DESIRED AVAILABLE NODES REASON AGE
	if len(line) != 7 || line[1] != ready || line[5] != reason {
		t.Errorf("kubectl get shows %q", line)
	}
}

// requireProblem waits until an Icecream is Stalled for that reason. It requires that
// kubectl get and kstatus agree, and that the conditions and the only Warning contain
// these words.
func requireProblem(t *testing.T, n *lab.Namespace, name, reason, words string) {
	t.Helper()
	ice := n.EventuallyStalled(t, name, reason)
	for _, condition := range ice.Status.Conditions {
		if condition.Type != v1alpha1.ConditionReconciling && !strings.Contains(condition.Message, words) {
			t.Errorf("condition %s says %q", condition.Type, condition.Message)
		}
	}
	requireKubectlShows(t, n, name, "False", reason)
	if got := kstatusOf(t, n, name); got != status.FailedStatus {
		t.Errorf("kstatus is %s, want Failed", got)
	}
	requireOneWarning(t, n, name, reason, words)
}

// requireRecovered waits until an Icecream is Ready, and requires that nothing in its
// status still mentions that reason.
func requireRecovered(t *testing.T, n *lab.Namespace, name, reason string) {
	t.Helper()
	ice := n.EventuallyReady(t, name)
	text, err := json.Marshal(ice.Status)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), reason) {
		t.Errorf("the Icecream is Ready, but its status still says %s", text)
	}
	requireKubectlShows(t, n, name, "True", v1alpha1.ReasonAvailable)
	if got := kstatusOf(t, n, name); got != status.CurrentStatus {
		t.Errorf("kstatus is %s, want Current", got)
	}
	n.Eventually(t, "there is an event Synced", func(context.Context) error {
		// There may be only one: a repeated event may be counted later.
		for _, event := range n.Events(t, name) {
			if event.Reason == v1alpha1.ReasonSynced {
				return nil
			}
		}
		return errors.New("there is none")
	})
}

func TestPodsThatNoNodeCanTake(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2", `resources: {requests: {cpu: "1000"}}`))
	requireProblem(t, n, "vanilla", v1alpha1.ReasonUnschedulable, "Insufficient cpu")
	if ice := n.Icecream(t, "vanilla"); ice.Status.Replicas != 2 || ice.Status.AvailableReplicas != 0 || len(ice.Status.Nodes) != 0 {
		t.Errorf("the status is %+v", ice.Status)
	}
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2", "resources: {requests: {cpu: 100m}}"))
	requireRecovered(t, n, "vanilla", v1alpha1.ReasonUnschedulable)
}

func TestImageThatCannotBePulled(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2", "image: registry.example/does-not-exist:1"))
	requireProblem(t, n, "vanilla", v1alpha1.ReasonImagePullBackOff, `cannot pull image "registry.example/does-not-exist:1": failed to pull`)
	edit(t, n, "vanilla", `"image": "registry.example/vanilla:1"`)
	requireRecovered(t, n, "vanilla", v1alpha1.ReasonImagePullBackOff)
}

// A kubelet that retries changes the Pod twice each time. The controller does not report
// these changes.
func TestImageThatIsTriedAgainAndAgainIsNoNews(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "image: registry.example/does-not-exist:1"))
	n.EventuallyStalled(t, "vanilla", v1alpha1.ReasonImagePullBackOff)
	n.Steadily(t, "it stays Stalled", settleTime, func(context.Context) error {
		return lab.IsStalled(v1alpha1.ReasonImagePullBackOff)(n.Icecream(t, "vanilla"))
	})

	began, before := time.Now(), n.Icecream(t, "vanilla")
	pod := n.LivePods(t)[0].Name
	const attempts = 5
	for range attempts {
		n.Eventually(t, "the kubelet backs off", func(context.Context) error {
			if got := waitingReason(t, n, pod); got != "ImagePullBackOff" {
				return fmt.Errorf("the container is waiting because of %q", got)
			}
			return nil
		})
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			now, err := n.Pods().Get(t.Context(), pod, metav1.GetOptions{})
			if err != nil {
				return err
			}
			now.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{
				Reason: "ErrImagePull", Message: `failed to pull and unpack image "registry.example/does-not-exist:1": not found`,
			}
			_, err = n.Pods().UpdateStatus(t.Context(), now, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	n.Steadily(t, "it stays Stalled", settleTime, func(context.Context) error {
		return lab.IsStalled(v1alpha1.ReasonImagePullBackOff)(n.Icecream(t, "vanilla"))
	})
	if written := statusWrites(t, n, "vanilla", began); len(written) > 0 {
		t.Errorf("the kubelet tried to pull the image %d times, and the controller made %s; the status was %+v\nand is now %+v", attempts, written, before.Status, n.Icecream(t, "vanilla").Status)
	}
	requireOneWarning(t, n, "vanilla", v1alpha1.ReasonImagePullBackOff, "cannot pull")
}

// waitingReason returns why the first container of a Pod is waiting, or "" if it is not.
func waitingReason(t *testing.T, n *lab.Namespace, pod string) string {
	t.Helper()
	now, err := n.Pods().Get(t.Context(), pod, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(now.Status.ContainerStatuses) == 0 || now.Status.ContainerStatuses[0].State.Waiting == nil {
		return ""
	}
	return now.Status.ContainerStatuses[0].State.Waiting.Reason
}

// A container that crashes is restarted after a while, and crashes again.
func TestPodsThatCrash(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2", "image: registry.example/crash:1"))
	requireProblem(t, n, "vanilla", v1alpha1.ReasonCrashLoopBackOff, "exit code 1")

	began := time.Now()
	n.Eventually(t, "a container has crashed three times", func(context.Context) error {
		for _, pod := range n.LivePods(t) {
			if pod.Status.ContainerStatuses[0].RestartCount >= 3 {
				return nil
			}
		}
		return fmt.Errorf("after %s, none has", time.Since(began))
	})
	if written := statusWrites(t, n, "vanilla", began); len(written) > 0 {
		t.Errorf("nothing has changed, but the controller made %s", written)
	}
	requireProblem(t, n, "vanilla", v1alpha1.ReasonCrashLoopBackOff, "exit code 1")

	edit(t, n, "vanilla", `"image": "registry.example/vanilla:1"`)
	requireRecovered(t, n, "vanilla", v1alpha1.ReasonCrashLoopBackOff)
}

// An update to an image that cannot run leaves the running Pods alone, as with any
// Deployment.
func TestUpdateThatCannotRun(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "replicas: 4", "image: registry.example/vanilla:1"))
	n.EventuallyReady(t, "vanilla")
	edit(t, n, "vanilla", `"image": "registry.example/crash:2"`)
	requireProblem(t, n, "vanilla", v1alpha1.ReasonCrashLoopBackOff, "exit code 1")
	if ice := n.Icecream(t, "vanilla"); ice.Status.AvailableReplicas < 3 || ice.Status.UpdatedReplicas == 0 {
		t.Errorf("the status is %+v", ice.Status)
	}
	edit(t, n, "vanilla", `"image": "registry.example/vanilla:1"`)
	requireRecovered(t, n, "vanilla", v1alpha1.ReasonCrashLoopBackOff)
}

// If a Pod runs but does not become ready, nothing says why. The Icecream is then Stalled
// only when the Deployment exceeds its progress deadline, which the controller does not
// set.
func TestPodsThatNeverBecomeReady(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2", "image: registry.example/never-ready:1"))
	n.EventuallyIcecream(t, "vanilla", "is Reconciling with all its Pods", func(ice *v1alpha1.Icecream) error {
		if s := ice.Status; s.Replicas != 2 || s.NodeCount == 0 {
			return fmt.Errorf("the status is %+v", s)
		}
		return nil
	})
	n.Steadily(t, "it is still in progress after the stall timeout", 4*time.Second, func(context.Context) error {
		if got := kstatusOf(t, n, "vanilla"); got != status.InProgressStatus {
			return fmt.Errorf("kstatus is %s", got)
		}
		return nil
	})
	requireKubectlShows(t, n, "vanilla", "False", v1alpha1.ReasonProgressing)

	n.Kubectl(t, "patch", "deployment", "vanilla", "-p", `{"spec":{"progressDeadlineSeconds":5}}`)
	n.EventuallyStalled(t, "vanilla", v1alpha1.ReasonProgressDeadlineExceeded)
	requireKubectlShows(t, n, "vanilla", "False", v1alpha1.ReasonProgressDeadlineExceeded)
	if got := kstatusOf(t, n, "vanilla"); got != status.FailedStatus {
		t.Errorf("kstatus is %s, want Failed", got)
	}
	requireOneWarning(t, n, "vanilla", v1alpha1.ReasonProgressDeadlineExceeded, "")

	edit(t, n, "vanilla", `"image": "registry.example/vanilla:1"`)
	requireRecovered(t, n, "vanilla", v1alpha1.ReasonProgressDeadlineExceeded)
	if got := n.Deployment(t, "vanilla").Spec.ProgressDeadlineSeconds; got == nil || *got != 5 {
		t.Errorf("the Deployment's deadline is now %v", got)
	}
}

func TestQuotaThatHasNoRoom(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.StartQuota(t, "few", "pods=1")
	n.Apply(t, icecreamYAML("vanilla", "replicas: 3"))
	requireProblem(t, n, "vanilla", v1alpha1.ReasonReplicaFailure, "exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1")
	if ice := n.Icecream(t, "vanilla"); ice.Status.AvailableReplicas != 1 || len(ice.Status.Nodes) != 1 {
		t.Errorf("the status is %+v", ice.Status)
	}
	n.Kubectl(t, "scale", "icecream/vanilla", "--replicas=1")
	requireRecovered(t, n, "vanilla", v1alpha1.ReasonReplicaFailure)
}

// A quota may forbid the Deployment itself.
func TestQuotaThatHasNoRoomForTheDeployment(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.StartQuota(t, "none", "count/deployments.apps=0")
	n.Apply(t, icecreamYAML("vanilla"))
	eventuallyRefused(t, n, "vanilla", "exceeded quota: none")
	requireKubectlShows(t, n, "vanilla", "False", v1alpha1.ReasonDeploymentRefused)
	requireOneWarning(t, n, "vanilla", v1alpha1.ReasonDeploymentRefused, "exceeded quota: none")
	n.Kubectl(t, "delete", "quota", "none")
	requireRecovered(t, n, "vanilla", v1alpha1.ReasonDeploymentRefused)
}

func TestNamespaceWithTheStrictestPodSecurity(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Kubectl(t, "label", "namespace", n.Name, "pod-security.kubernetes.io/enforce=restricted")
	// The label takes effect when the API server's own cache has it.
	n.Eventually(t, "a Pod that is not restricted is refused", func(ctx context.Context) error {
		if _, err := n.TryKubectl(ctx, "", "run", "lax", "--image=registry.example/lax:1", "--dry-run=server"); err == nil {
			return fmt.Errorf("the Pod is accepted")
		}
		return nil
	})
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2"))
	n.EventuallyReady(t, "vanilla")
}

func TestPausedDeployment(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2", "image: registry.example/vanilla:1"))
	n.EventuallyReady(t, "vanilla")

	// Pausing a complete Deployment is not a problem. Until the Deployment controller has
	// observed the pause, the Icecream may be in progress.
	n.Kubectl(t, "rollout", "pause", "deployment/vanilla")
	n.Steadily(t, "it does not fail", settleTime, func(context.Context) error {
		if got := kstatusOf(t, n, "vanilla"); got != status.CurrentStatus && got != status.InProgressStatus {
			return fmt.Errorf("kstatus is %s", got)
		}
		return nil
	})
	n.EventuallyReady(t, "vanilla")

	edit(t, n, "vanilla", `"image": "registry.example/vanilla:2"`)
	requireProblem(t, n, "vanilla", v1alpha1.ReasonDeploymentPaused, `Deployment "vanilla" is paused`)
	if d := n.Deployment(t, "vanilla"); !d.Spec.Paused || d.Status.AvailableReplicas != 2 || d.Status.UpdatedReplicas != 0 {
		t.Errorf("the Deployment is %+v", d)
	}
	n.Kubectl(t, "rollout", "resume", "deployment/vanilla")
	requireRecovered(t, n, "vanilla", v1alpha1.ReasonDeploymentPaused)
}
