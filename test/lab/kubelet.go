package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Kubelet runs a controller process for each Pod of the controller, because the
// simulated nodes do not really run containers. The process has the arguments and the
// service account of the Pod. It starts when the Pod is Running, and stops when the Pod is
// deleted. The Pod exists until its process has ended.
type Kubelet struct {
	lab *Lab

	mu      sync.Mutex
	running map[types.UID]container
	errs    []error
}

// container is a process and its Pod.
type container struct {
	*Controller
	pod corev1.Pod
}

// hasProcess is the finalizer of a Pod while its process runs.
const hasProcess = "local-cluster/process"

// RunPods runs a controller process for each Pod of the program's Deployment, until the end of the
// test. The test fails if a process does not start or does not stop cleanly.
func (l *Lab) RunPods(t testing.TB) *Kubelet {
	t.Helper()
	namespace, labels := l.program.Namespace, "app.kubernetes.io/name="+l.program.Account
	k := &Kubelet{lab: l, running: map[types.UID]container{}}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(pollEvery) {
			if pods, err := l.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels}); err == nil {
				k.sync(context.WithoutCancel(ctx), pods.Items) // to its end
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
func (k *Kubelet) Controllers() (running []*Controller) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.running {
		running = append(running, c.Controller)
	}
	return running
}

// RequireRolledOut waits until the latest Pods of the Deployment are ready, and the others gone.
func (k *Kubelet) RequireRolledOut(t testing.TB) {
	t.Helper()
	Kubectl(t, k.lab, "-n", k.lab.program.Namespace, "rollout", "status", "--timeout", Timeout.String(), "deployment/"+k.lab.program.Account)
}

// RequireMetrics waits until two replicas run, which are ready, one of them leads, and the leader's
// metrics contain that. It requires that the metrics are for those who may get them, and for
// nobody else. Replicas that the last update has replaced may be still about to end.
func (k *Kubelet) RequireMetrics(t testing.TB, leaders string) {
	t.Helper()
	name := k.lab.program.Account
	for _, account := range []string{"prometheus", "curious"} {
		Kubectl(t, k.lab, "-n", "default", "create", "serviceaccount", account)
	}
	Kubectl(t, k.lab, "create", "clusterrolebinding", "prometheus", "--clusterrole="+name+"-metrics-reader", "--serviceaccount=default:prometheus")
	token := func(account string) string {
		return strings.TrimSpace(Kubectl(t, k.lab, "-n", "default", "create", "token", account))
	}
	requests := []struct {
		path, who, token string
		code             int
		text             string // that is in the answer
	}{
		{"/readyz?verbose", "a kubelet", "", http.StatusOK, ""},
		{"/metrics", "nobody", "", http.StatusUnauthorized, ""},
		{"/metrics", "somebody who made a token up", "sesame", http.StatusUnauthorized, ""},
		{"/metrics", "somebody without permission", token("curious"), http.StatusForbidden, ""},
		{"/metrics", "Prometheus", token("prometheus"), http.StatusOK, "leader_election_master_status"},
	}
	Eventually(t, "two replicas run and one of them leads, as those may know who may", func() error {
		replicas, leading := k.Controllers(), 0
		for _, c := range replicas {
			for _, r := range requests {
				code, body, err := c.TryGet(t, r.path, r.token)
				if err != nil {
					return err
				}
				if code != r.code || !strings.Contains(body, r.text) || code != http.StatusOK && strings.Contains(body, "controller_") {
					return fmt.Errorf("%s gets %s with %d: %s", r.who, r.path, code, body)
				}
				if strings.Contains(body, `leader_election_master_status{name="`+name+`"} 1`) {
					leading++
					if !strings.Contains(body, leaders) {
						return fmt.Errorf("the leader's metrics have no %s: %s", leaders, body)
					}
				}
			}
		}
		if len(replicas) != 2 || leading != 1 {
			return fmt.Errorf("%d of %d replicas say that they lead", leading, len(replicas))
		}
		return nil
	})
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
		if _, isRunning := k.running[pod.UID]; !isRunning {
			c, err := k.start(ctx, &pod)
			k.mu.Lock()
			if c != nil {
				k.running[pod.UID] = container{c, pod}
			}
			k.errs = append(k.errs, err)
			k.mu.Unlock()
		}
	}
	for uid, c := range maps.Clone(k.running) {
		if !want[uid] {
			err := errors.Join(c.Terminate(), c.checkLog(), k.finalize(ctx, &c.pod, "[]"))
			k.mu.Lock()
			k.errs = append(k.errs, err)
			delete(k.running, uid)
			k.mu.Unlock()
		}
	}
}

// finalize sets the finalizers of a Pod.
func (k *Kubelet) finalize(ctx context.Context, pod *corev1.Pod, finalizers string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"finalizers":%s}}`, pod.UID, finalizers)
	_, err := k.lab.Kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// start starts a controller with the arguments of the Pod's container. Unlike a container,
// the process has no mounted token, and shares the ports of this machine with others; so
// start adds flags for a kubeconfig and an address. It returns nil if the Pod is being
// deleted.
func (k *Kubelet) start(ctx context.Context, pod *corev1.Pod) (*Controller, error) {
	err := k.finalize(ctx, pod, fmt.Sprintf("[%q]", hasProcess))
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
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
