package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// A rename never has fewer ready Pods than before and after it.
func TestRename(t *testing.T) {
	t.Parallel()
	const cannotRun = "image: registry.example/does-not-exist:1"
	for name, test := range map[string]struct {
		from  []string
		to    [][]string // specs, one right after the other
		ready int        // how many Pods are ready at every moment
	}{
		"and nothing else":  {[]string{"deploymentName: cone", "replicas: 3"}, [][]string{{"deploymentName: cup", "replicas: 3"}}, 3},
		"and scaling up":    {[]string{"deploymentName: cone", "replicas: 2"}, [][]string{{"deploymentName: cup", "replicas: 4"}}, 2},
		"and scaling down":  {[]string{"deploymentName: cone", "replicas: 4"}, [][]string{{"deploymentName: cup", "replicas: 2"}}, 2},
		"taken back twice":  {[]string{"deploymentName: cone", "replicas: 2"}, [][]string{{"deploymentName: cup", "replicas: 2"}, {"deploymentName: cone", "replicas: 2"}, {"deploymentName: cup", "replicas: 2"}, {"deploymentName: cone", "replicas: 2"}}, 2},
		"that fails, first": {[]string{"deploymentName: cone", "replicas: 2"}, [][]string{{"deploymentName: cup", "replicas: 2", cannotRun}, {"deploymentName: cup", "replicas: 2"}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)
			n.Apply(t, icecreamYAML("vanilla", test.from...))
			n.EventuallyReady(t, "vanilla")
			r, began := record(t, n), time.Now()
			for _, spec := range test.to {
				n.Apply(t, icecreamYAML("vanilla", spec...))
				if slices.Contains(spec, cannotRun) {
					n.EventuallyStalled(t, "vanilla", v1alpha1.ReasonImagePullBackOff)
				}
			}
			n.EventuallyReady(t, "vanilla")
			n.Eventually(t, "there is only one Deployment", func(context.Context) error {
				if got := names(n.AllDeployments(t)); len(got) != 1 {
					return fmt.Errorf("the Deployments are %q", got)
				}
				return nil
			})
			r.requireSeamless(t, n, test.ready)
			if written := steps(deploymentWrites(t, n, began)); name == "and nothing else" && !slices.Equal(written, []string{"create cup", "delete cone"}) {
				t.Errorf("the rename took these requests: %q", written)
			}
		})
	}
}

// What others have added may take more power than the controller has. It is named before it
// is lost.
func TestRenameNamesWhatItCannotKeep(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cone", "replicas: 2"))
	n.EventuallyReady(t, "vanilla")
	n.Kubectl(t, "create", "secret", "generic", "password", "--from-literal=p=x")
	n.Kubectl(t, "patch", "deployment", "cone", "-p", `{"spec": {"template": {"spec": {
		"containers": [{"name": "icecream", "env": [{"name": "P", "valueFrom": {"secretKeyRef": {"name": "password", "key": "p"}}}]}]}}}}`)
	n.EventuallyReady(t, "vanilla")

	n.MayBeRefused()
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", "replicas: 2", "image: registry.example/never-ready:1"))
	eventuallyEvent(t, n, "vanilla", v1alpha1.ReasonAdditionsLost, `Created Deployment "cup" without what was added to Deployment "cone", as an admission policy demands; it will be lost when the latter is deleted: template.spec.containers[icecream].env`)
	n.Deployment(t, "cone")
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", "replicas: 2"))
	eventuallyOnlyDeployments(t, n, "vanilla", "cup")
}

// eventuallyOnlyDeployments waits until the namespace has exactly these Deployments and
// the Icecream is Ready.
func eventuallyOnlyDeployments(t *testing.T, n *lab.Namespace, icecream string, deployments ...string) {
	t.Helper()
	n.Eventually(t, fmt.Sprintf("the only Deployments are %q", deployments), func(context.Context) error {
		if got := names(n.AllDeployments(t)); !slices.Equal(got, deployments) {
			return fmt.Errorf("the Deployments are %q", got)
		}
		return nil
	})
	n.EventuallyReady(t, icecream)
}

// requireSeamless requires that, at every moment of the recording, at least that many Pods
// were ready, and that no Pod was ever selected by two
// Deployments.
func (r *recording) requireSeamless(t *testing.T, n *lab.Namespace, wanted int) {
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

// A recording holds every change to the Deployments and Pods of a namespace.
type recording struct {
	begin uint64 // replay shows the changes after this resource version

	mu      sync.Mutex
	changes []change
}

// A change is a new state of an object, or its deletion.
type change struct {
	version    uint64
	deployment *appsv1.Deployment // exactly one of deployment and pod is set
	pod        *corev1.Pod
	isGone     bool
}

// A snapshot holds the objects that exist at one moment, by name.
type snapshot struct {
	deployments map[string]*appsv1.Deployment
	pods        map[string]*corev1.Pod
}

// record records the changes in a namespace from now on, until the test ends.
func record(t *testing.T, n *lab.Namespace) *recording {
	t.Helper()
	r := &recording{}
	deployments, err := n.Deployments().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := n.Pods().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range deployments.Items {
		r.add(t, watch.Event{Type: watch.Added, Object: &deployments.Items[i]})
	}
	for i := range pods.Items {
		r.add(t, watch.Event{Type: watch.Added, Object: &pods.Items[i]})
	}
	r.begin = versionOf(t, pods)
	r.follow(t, n.Deployments().Watch, deployments.ResourceVersion)
	r.follow(t, n.Pods().Watch, pods.ResourceVersion)
	return r
}

// follow records the changes that a watch reports after that resource version, until the
// test ends.
func (r *recording) follow(t *testing.T, watchFrom func(context.Context, metav1.ListOptions) (watch.Interface, error), version string) {
	t.Helper()
	watcher, err := watchFrom(context.WithoutCancel(t.Context()), metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	var following sync.WaitGroup
	following.Go(func() {
		for event := range watcher.ResultChan() {
			r.add(t, event)
		}
	})
	t.Cleanup(func() {
		watcher.Stop()
		following.Wait()
	})
}

func (r *recording) add(t *testing.T, event watch.Event) {
	c := change{isGone: event.Type == watch.Deleted}
	switch object := event.Object.(type) {
	case *appsv1.Deployment:
		c.version, c.deployment = versionOf(t, object), object
	case *corev1.Pod:
		c.version, c.pod = versionOf(t, object), object
	default:
		return // the watch was stopped or has failed; if changes are missing, replay notices
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, c)
}

// replay waits until the recording is complete. Then it calls visit for each change so far,
// together with the snapshot after that change, in the order in which the API server made
// the changes.
func (r *recording) replay(t *testing.T, n *lab.Namespace, visit func(now snapshot, c change)) {
	t.Helper()
	n.Eventually(t, "the recording is complete", func(ctx context.Context) error {
		end := r.forEach(func(snapshot, change) {})
		for _, d := range n.AllDeployments(t) {
			if seen := end.deployments[d.Name]; seen == nil || seen.ResourceVersion != d.ResourceVersion {
				return fmt.Errorf("the last change of Deployment %q is missing", d.Name)
			}
			delete(end.deployments, d.Name)
		}
		list, err := n.Pods().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pod := range list.Items {
			if seen := end.pods[pod.Name]; seen == nil || seen.ResourceVersion != pod.ResourceVersion {
				return fmt.Errorf("the last change of Pod %q is missing", pod.Name)
			}
			delete(end.pods, pod.Name)
		}
		if len(end.deployments)+len(end.pods) > 0 {
			return errors.New("the deletion of an object is missing")
		}
		return nil
	})
	r.forEach(visit)
}

// forEach calls visit for each change recorded so far, and returns the snapshot at the end.
func (r *recording) forEach(visit func(now snapshot, c change)) snapshot {
	r.mu.Lock()
	changes := slices.Clone(r.changes)
	r.mu.Unlock()
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.version, b.version) })

	now := snapshot{deployments: map[string]*appsv1.Deployment{}, pods: map[string]*corev1.Pod{}}
	for _, c := range changes {
		switch {
		case c.deployment != nil && c.isGone:
			delete(now.deployments, c.deployment.Name)
		case c.deployment != nil:
			now.deployments[c.deployment.Name] = c.deployment
		case c.isGone:
			delete(now.pods, c.pod.Name)
		default:
			now.pods[c.pod.Name] = c.pod
		}
		if c.version > r.begin {
			visit(now, c)
		}
	}
	return now
}

// versionOf returns the resource version of an object as a number.
func versionOf(t *testing.T, of interface{ GetResourceVersion() string }) uint64 {
	t.Helper()
	version, err := strconv.ParseUint(of.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Errorf("a resource version is not a number: %v", err)
	}
	return version
}

// readyPods returns the number of ready Pods.
func (s snapshot) readyPods() int {
	ready := 0
	for _, pod := range s.pods {
		if isReadyPod(pod) {
			ready++
		}
	}
	return ready
}

// isReadyPod reports whether a Pod is ready and not being deleted.
func isReadyPod(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
