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

// A Kubelet runs the controller for Pods, whose own containers the simulated nodes
// only pretend to run: a process with the arguments and under the service account
// of each Pod, from when the Pod runs until it is deleted.
type Kubelet struct {
	lab *Lab

	mu      sync.Mutex
	running map[types.UID]*Controller
	errs    []error
}

// RunPods runs the controller for the Pods that have those labels in the namespace,
// until the test ends, which fails if one of them did not stop cleanly.
func (l *Lab) RunPods(t testing.TB, namespace, labels string) *Kubelet {
	t.Helper()
	k := &Kubelet{lab: l, running: map[types.UID]*Controller{}}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(pollEvery) {
			if pods, err := l.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels}); err == nil {
				k.follow(ctx, pods.Items)
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		watching.Wait()
		k.follow(context.Background(), nil)
		if err := errors.Join(k.errs...); err != nil {
			t.Error(err)
		}
	})
	return k
}

// Controllers are those that run now.
func (k *Kubelet) Controllers() []*Controller {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.running))
}

// follow starts what has come and stops what has gone.
func (k *Kubelet) follow(ctx context.Context, pods []corev1.Pod) {
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
			k.errs = append(k.errs, err, k.running[uid].complaints())
			delete(k.running, uid)
			k.mu.Unlock()
		}
	}
}

// start runs what the Pod's container would. Several share this machine's ports
// and have no token mounted.
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

// Helm runs the helm that hack/tools/go.mod pins, as an administrator.
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
