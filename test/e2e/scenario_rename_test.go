package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// eventuallyOnlyDeployments waits until the namespace has exactly these Deployments and
// the Icecream is Ready.
func eventuallyOnlyDeployments(t *testing.T, n *lab.Namespace, icecream string, deployments ...string) *v1alpha1.Icecream {
	t.Helper()
	n.Eventually(t, fmt.Sprintf("the only Deployments are %q", deployments), func(context.Context) error {
		if got := names(n.AllDeployments(t)); !cmp.Equal(got, deployments) {
			return fmt.Errorf("the Deployments are %q", got)
		}
		return nil
	})
	return n.EventuallyReady(t, icecream)
}

// requireSeamlessRename requires that, at every moment of the recording, at least that many
// Pods were ready, that no Deployment was deleted before its replacement was rolled out,
// and that no Pod was ever selected by two Deployments.
func requireSeamlessRename(t *testing.T, n *lab.Namespace, r *recording, wanted int, replacedBy map[string]string) {
	t.Helper()
	selectors := map[string]labels.Selector{}
	r.replay(t, n, func(now snapshot, c change) {
		if got := now.readyPods(); got < wanted {
			t.Errorf("at resource version %d only %d Pods were ready", c.version, got)
		}
		if c.deployment != nil {
			selector, err := metav1.LabelSelectorAsSelector(c.deployment.Spec.Selector)
			if err != nil {
				t.Fatal(err)
			}
			selectors[c.deployment.Name] = selector
		}
		if c.deployment != nil && c.isGone {
			next := now.deployments[replacedBy[c.deployment.Name]]
			if next == nil || !isRolledOut(next) {
				t.Errorf("Deployment %q was deleted at resource version %d, when its replacement was %+v", c.deployment.Name, c.version, next)
			}
		}
		if c.pod != nil {
			var selectedBy []string
			for name, selector := range selectors {
				if selector.Matches(labels.Set(c.pod.Labels)) {
					selectedBy = append(selectedBy, name)
				}
			}
			if len(selectedBy) > 1 {
				t.Errorf("Pod %q is selected by the Deployments %q", c.pod.Name, selectedBy)
			}
		}
	})
}

func TestRenameMakesTheNewBeforeItDropsTheOld(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cone", "replicas: 3"))
	n.EventuallyReady(t, "vanilla")

	r, began := record(t, n), time.Now()
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", "replicas: 3"))
	ice := eventuallyOnlyDeployments(t, n, "vanilla", "cup")
	n.Eventually(t, "the old Pods are gone", func(context.Context) error {
		if pods := n.LivePods(t); len(pods) != 3 {
			return fmt.Errorf("there are %d", len(pods))
		}
		return nil
	})

	requireSeamlessRename(t, n, r, 3, map[string]string{"cone": "cup"})
	if written := steps(deploymentWrites(t, n, began)); !cmp.Equal(written, []string{"create cup", "delete cone"}) {
		t.Errorf("the rename took these requests: %q", written)
	}
	if ice.Status.DeploymentName != "cup" || ice.Status.Replicas != 3 {
		t.Errorf("the status is %+v", ice.Status)
	}
	eventuallyTold(t, n, "vanilla", `Created Deployment "cup"`, 1)
	eventuallyTold(t, n, "vanilla", `Renamed Deployment "cone" to "cup"`, 1)
}

func TestRenameThatIsTakenBackAtOnce(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cone", "replicas: 3"))
	n.EventuallyReady(t, "vanilla")

	r := record(t, n)
	for range 3 {
		n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", "replicas: 3"))
		n.Apply(t, icecreamYAML("vanilla", "deploymentName: cone", "replicas: 3"))
	}
	eventuallyOnlyDeployments(t, n, "vanilla", "cone")
	requireSeamlessRename(t, n, r, 3, map[string]string{"cone": "cup", "cup": "cone"})
}

// If the old name is restored before the new Deployment can take over, the running Pods
// are left alone.
func TestRenameThatIsTakenBackHalfway(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cone", "replicas: 2", "image: registry.example/vanilla:1"))
	n.EventuallyReady(t, "vanilla")
	cone, pods := n.Deployment(t, "cone"), podUIDs(n.LivePods(t))

	r := record(t, n)
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", "replicas: 2", "image: registry.example/never-ready:1"))
	n.Eventually(t, "there is a new Deployment with Pods", func(ctx context.Context) error {
		cup, err := n.Deployments().Get(ctx, "cup", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if cup.Status.Replicas != 2 {
			return fmt.Errorf("it has %d Pods", cup.Status.Replicas)
		}
		return nil
	})
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cone", "replicas: 2", "image: registry.example/vanilla:1"))
	eventuallyOnlyDeployments(t, n, "vanilla", "cone")

	n.Eventually(t, "only the original Pods are left", func(context.Context) error {
		if diff := cmp.Diff(pods, podUIDs(n.LivePods(t))); diff != "" {
			return fmt.Errorf("the Pods differ (-before +now):\n%s", diff)
		}
		return nil
	})
	if now := n.Deployment(t, "cone"); now.UID != cone.UID || now.Generation != cone.Generation {
		t.Errorf("the Deployment was %+v\nand is now %+v", cone.ObjectMeta, now.ObjectMeta)
	}
	r.replay(t, n, func(now snapshot, c change) {
		if got := now.readyPods(); got < 2 {
			t.Errorf("at resource version %d only %d Pods were ready", c.version, got)
		}
	})
	eventuallyTold(t, n, "vanilla", `Deleted Deployment "cup", whose name is no longer asked for`, 1)
}

func TestRenameToAnImageThatCannotBePulled(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cone", "replicas: 2"))
	n.EventuallyReady(t, "vanilla")
	cone := n.Deployment(t, "cone")

	r := record(t, n)
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", "replicas: 2", "image: registry.example/does-not-exist:1"))
	n.EventuallyStalled(t, "vanilla", v1alpha1.ReasonImagePullBackOff)
	n.Steadily(t, "the old Deployment stays", settleTime, func(ctx context.Context) error {
		now, err := n.Deployments().Get(ctx, "cone", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if now.UID != cone.UID || now.Generation != cone.Generation || !isRolledOut(now) {
			return fmt.Errorf("it is %+v", now)
		}
		return nil
	})

	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", "replicas: 2", "image: registry.example/vanilla:2"))
	eventuallyOnlyDeployments(t, n, "vanilla", "cup")
	requireSeamlessRename(t, n, r, 2, map[string]string{"cone": "cup"})
}

// The API reference says about status.deploymentName: "While a rename is under way or
// impossible, it is the one that still runs."
func TestRenameUnderWayReportsTheDeploymentThatRuns(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cone", "replicas: 2"))
	n.EventuallyReady(t, "vanilla")

	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", "replicas: 2", "image: registry.example/does-not-exist:1"))
	ice := n.EventuallyStalled(t, "vanilla", v1alpha1.ReasonImagePullBackOff)
	if ice.Status.DeploymentName != "cone" || ice.Status.AvailableReplicas != 2 {
		t.Errorf("Deployment \"cone\" runs 2 Pods and \"cup\" cannot run any, but the status says that %q runs %d", ice.Status.DeploymentName, ice.Status.AvailableReplicas)
	}
}

// What others have added to a Deployment comes along.
func TestRenameKeepsWhatOthersAdded(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cone", "replicas: 2"))
	n.EventuallyReady(t, "vanilla")
	n.Kubectl(t, "annotate", "deployment", "cone", "team.example/owner=ops")
	n.Kubectl(t, "patch", "deployment", "cone", "--type=strategic", "-p", `{"spec": {"minReadySeconds": 1, "template": {"spec": {
		"tolerations": [{"key": "dairy", "operator": "Exists"}], "imagePullSecrets": [{"name": "registry"}],
		"containers": [{"name": "icecream", "env": [{"name": "FLAVOR", "value": "mint"}]}, {"name": "sidecar", "image": "registry.example/sidecar:1"}]}}}}`)
	n.EventuallyReady(t, "vanilla")

	began := time.Now()
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", "replicas: 2"))
	eventuallyOnlyDeployments(t, n, "vanilla", "cup")
	d := n.Deployment(t, "cup")
	pod := d.Spec.Template.Spec
	if len(pod.Tolerations) != 1 || len(pod.ImagePullSecrets) != 1 || len(pod.Containers) != 2 || len(containerOf(t, d).Env) != 1 || d.Spec.MinReadySeconds != 1 || d.Annotations["team.example/owner"] != "ops" {
		t.Errorf("something is lost: %+v", d)
	}
	if written := steps(deploymentWrites(t, n, began)); !cmp.Equal(written, []string{"create cup", "delete cone"}) {
		t.Errorf("the rename took these requests: %q", written)
	}
	requireNoWarnings(t, n, "vanilla")
}

// What others have added may take more power than the controller has. It is named before it
// is lost.
func TestRenameNamesWhatItCannotKeep(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cone", "replicas: 2"))
	n.EventuallyReady(t, "vanilla")
	n.Kubectl(t, "create", "secret", "generic", "password", "--from-literal=p=x")
	n.Kubectl(t, "patch", "deployment", "cone", "--type=strategic", "-p", `{"spec": {"template": {"spec": {
		"containers": [{"name": "icecream", "env": [{"name": "P", "valueFrom": {"secretKeyRef": {"name": "password", "key": "p"}}}]}]}}}}`)
	n.EventuallyReady(t, "vanilla")

	n.MayBeRefused()
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", "replicas: 2", "image: registry.example/never-ready:1"))
	eventuallyEvent(t, n, "vanilla", v1alpha1.ReasonAdditionsLost, `Created Deployment "cup" without what was added to Deployment "cone", as an admission policy demands; it will be lost when the latter is deleted: template.spec.containers[icecream].env`)
	if env := containerOf(t, n.Deployment(t, "cone")).Env; len(env) != 1 {
		t.Errorf("the old Deployment has %v", env)
	}
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", "replicas: 2"))
	eventuallyOnlyDeployments(t, n, "vanilla", "cup")
}

// Scaling reaches the Deployment that serves, whatever becomes of the other.
func TestRenameThatIsStuckCanBeScaled(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spec   []string
		reason string
	}{
		"by its image": {[]string{"deploymentName: cup", "image: registry.example/does-not-exist:1"}, v1alpha1.ReasonImagePullBackOff},
		"by its name":  {[]string{"deploymentName: occupied"}, v1alpha1.ReasonErrResourceExists},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)
			createForeignDeployment(t, n, "occupied")
			n.Apply(t, icecreamYAML("vanilla", "deploymentName: cone", "replicas: 2"))
			n.EventuallyReady(t, "vanilla")
			n.Apply(t, icecreamYAML("vanilla", append(test.spec, "replicas: 2")...))
			n.EventuallyStalled(t, "vanilla", test.reason)
			for _, replicas := range []int32{4, 1} {
				n.Kubectl(t, "scale", "icecream/vanilla", fmt.Sprintf("--replicas=%d", replicas))
				n.Eventually(t, fmt.Sprintf("%d Pods serve", replicas), func(context.Context) error {
					cone, s := n.Deployment(t, "cone"), n.Icecream(t, "vanilla").Status
					if !isRolledOut(cone) || *cone.Spec.Replicas != replicas || s.DeploymentName != "cone" || s.AvailableReplicas != replicas {
						return fmt.Errorf("the Deployment is %+v, the status %+v", cone.Status, s)
					}
					return nil
				})
			}
			n.EventuallyStalled(t, "vanilla", test.reason)
		})
	}
}

func TestRenameToAnOccupiedName(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	foreign := createForeignDeployment(t, n, "cup")
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cone", "replicas: 2"))
	before := n.EventuallyReady(t, "vanilla")
	cone := eventuallySettled(t, n, "cone")

	r := record(t, n)
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", "replicas: 2"))
	ice := n.EventuallyStalled(t, "vanilla", v1alpha1.ReasonErrResourceExists)
	if s := ice.Status; s.DeploymentName != "cone" || s.Replicas != 2 || s.AvailableReplicas != 2 || s.Selector != before.Status.Selector || !cmp.Equal(s.Nodes, before.Status.Nodes) {
		t.Errorf("Deployment \"cone\" is unchanged, but the status was %+v\nand is now %+v", before.Status, s)
	}
	requireOneWarning(t, n, "vanilla", v1alpha1.ReasonErrResourceExists, `Resource "cup" already exists and is not managed by Icecream`)
	n.Steadily(t, "the old Deployment does not change", settleTime, func(context.Context) error {
		if now := n.Deployment(t, "cone"); now.ResourceVersion != cone.ResourceVersion {
			return fmt.Errorf("it is %+v", now)
		}
		return nil
	})
	requireUntouched(t, n, foreign)

	n.Kubectl(t, "delete", "deployment", "cup")
	eventuallyOnlyDeployments(t, n, "vanilla", "cup")
	requireSeamlessRename(t, n, r, 2, map[string]string{"cone": "cup", "cup": "cone"})
}

func TestRenameAndScaleAtOnce(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ from, to int }{{2, 5}, {5, 2}, {3, 0}, {0, 3}} {
		t.Run(fmt.Sprintf("from %d to %d", test.from, test.to), func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)
			n.Apply(t, icecreamYAML("vanilla", "deploymentName: cone", fmt.Sprintf("replicas: %d", test.from)))
			n.EventuallyReady(t, "vanilla")

			r := record(t, n)
			n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", fmt.Sprintf("replicas: %d", test.to)))
			ice := eventuallyOnlyDeployments(t, n, "vanilla", "cup")
			if int(ice.Status.Replicas) != test.to {
				t.Errorf("the status is %+v", ice.Status)
			}
			requireSeamlessRename(t, n, r, min(test.from, test.to), map[string]string{"cone": "cup"})
		})
	}
}
