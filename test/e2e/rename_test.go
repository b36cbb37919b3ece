package e2e

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

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
			least, began := leastReady(t, n), time.Now()
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
			if got := least(); got < test.ready {
				t.Errorf("at some time only %d Pods were ready", got)
			}
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

// leastReady begins to count the ready Pods of the namespace, and returns a function that returns
// how many there were at least.
func leastReady(t *testing.T, n *lab.Namespace) func() int {
	t.Helper()
	var mu sync.Mutex
	ready, least := map[string]bool{}, math.MaxInt
	isCounting := false
	look := func(pod *corev1.Pod, isGone bool) {
		mu.Lock()
		defer mu.Unlock()
		if delete(ready, pod.Name); !isGone && pod.DeletionTimestamp == nil && isPodReady(pod) {
			ready[pod.Name] = true
		}
		if isCounting {
			least = min(least, len(ready))
		}
	}
	factory := kubeinformers.NewSharedInformerFactoryWithOptions(n.Lab.Kube, 0, kubeinformers.WithNamespace(n.Name))
	registration, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { look(obj.(*corev1.Pod), false) },
		UpdateFunc: func(_, obj any) { look(obj.(*corev1.Pod), false) },
		DeleteFunc: func(obj any) {
			if pod, ok := obj.(*corev1.Pod); ok {
				look(pod, true)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done()) // which ends before the cleanup
	t.Cleanup(factory.Shutdown)
	cache.WaitForCacheSync(t.Context().Done(), registration.HasSynced)
	mu.Lock()
	defer mu.Unlock()
	isCounting = true
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return least
	}
}

func isPodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
