package lab

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Kubelet runs a controller process for each Pod of the controller, because the
// simulated nodes do not really run containers. The process has the arguments and the
// service account of the Pod. It starts when the Pod is Running, and stops when the Pod is
// deleted.
type Kubelet struct {
	lab *Lab

	mu      sync.Mutex
	running map[types.UID]*Controller
	errs    []error
}

// RunPods runs a controller process for each Pod in the namespace that matches the label
// selector, until the end of the test. The test fails if a process does not start or does
// not stop cleanly.
func (l *Lab) RunPods(t testing.TB, namespace, labels string) *Kubelet {
	t.Helper()
	k := &Kubelet{lab: l, running: map[types.UID]*Controller{}}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(pollEvery) {
			if pods, err := l.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels}); err == nil {
				k.sync(ctx, pods.Items)
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		watching.Wait()
		k.sync(context.Background(), nil)
		if err := errors.Join(k.errs...); err != nil {
			t.Error(err)
		}
	})
	return k
}

// Controllers returns the controllers that are running.
func (k *Kubelet) Controllers() []*Controller {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.running))
}

// sync starts a controller for each running Pod that has none, and stops the controllers
// whose Pods are no longer running.
func (k *Kubelet) sync(ctx context.Context, pods []corev1.Pod) {
	want := map[types.UID]bool{}
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		want[pod.UID] = true
		k.mu.Lock()
		isRunning := k.running[pod.UID] != nil
		k.mu.Unlock()
		if !isRunning {
			c, err := k.start(ctx, &pod)
			k.mu.Lock()
			k.running[pod.UID], k.errs = c, append(k.errs, err)
			k.mu.Unlock()
		}
	}
	for _, uid := range slices.Collect(maps.Keys(k.running)) {
		if !want[uid] && k.running[uid] != nil {
			err := k.running[uid].Terminate()
			k.mu.Lock()
			k.errs = append(k.errs, err, k.running[uid].checkLog())
			delete(k.running, uid)
			k.mu.Unlock()
		}
	}
}

// start starts a controller with the arguments of the Pod's container. Unlike a container,
// the process has no mounted token, and shares the ports of this machine with others; so
// start adds flags for a kubeconfig and an address.
func (k *Kubelet) start(ctx context.Context, pod *corev1.Pod) (*Controller, error) {
	kubeconfig, err := k.lab.ServiceAccountKubeconfig(ctx, pod.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return nil, err
	}
	c := k.lab.NewControllerWith()
	c.User = "system:serviceaccount:" + pod.Namespace + ":" + pod.Spec.ServiceAccountName
	c.args = append(slices.Clone(pod.Spec.Containers[0].Args),
		"-kubeconfig="+kubeconfig, "-leader-elect-resource-namespace="+pod.Namespace, "-bind-address=127.0.0.1:0")
	err = c.Launch()
	return c, err
}

// Helm runs the version of helm that hack/tools/go.mod pins, as an administrator, and
// returns its output.
func (l *Lab) Helm(t testing.TB, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", append([]string{"tool", "-modfile=hack/tools/go.mod", "helm"}, args...)...)
	command.Dir = l.root
	command.Env = append(os.Environ(), "KUBECONFIG="+l.Kubeconfig(), "HELM_CACHE_HOME="+l.Dir(), "HELM_CONFIG_HOME="+l.Dir(), "HELM_DATA_HOME="+l.Dir())
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return string(output)
}
