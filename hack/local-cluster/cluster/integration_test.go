package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/hack/local-cluster/internal/parts"
)

const soon = 30 * time.Second

// The first cluster has everything, and the second one the least. Both run side by side.
func TestClusters(t *testing.T) {
	if testing.Short() {
		t.Skip("boots two clusters")
	}
	t.Setenv("TMPDIR", t.TempDir())
	first := start(t, cluster.Options{Audit: true, SchedulerConfig: "profiles: [{schedulerName: default-scheduler}]\n", Log: t.Output()})
	second := start(t, cluster.Options{OnlyAPI: true})

	t.Run("a Deployment gets ready Pods", func(t *testing.T) { deploymentGetsReadyPods(t, first) })
	t.Run("a service account may do what it was given", func(t *testing.T) { serviceAccountObeysRBAC(t, first) })
	t.Run("an image that cannot be pulled", func(t *testing.T) { imageCannotBePulled(t, first) })
	t.Run("a container that crashes", func(t *testing.T) { containerCrashes(t, first) })
	t.Run("a node follows its annotation", func(t *testing.T) { nodeFollowsAnnotation(t, first) })
	t.Run("the API server restarts after etcd is compacted", func(t *testing.T) { apiServerRestarts(t, first) })
	t.Run("a component that dies is reported", func(t *testing.T) { deathIsReported(t, first) })
	t.Run("without nodes there is only the API", func(t *testing.T) {
		if _, err := clientOf(t, second.RESTConfig()).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		if logs, err := filepath.Glob(filepath.Join(second.Dir(), "logs", "*")); err != nil || len(logs) != 2 {
			t.Errorf("logs of %v, %v; want only etcd and the API server", logs, err)
		}
	})
	t.Run("nothing stays", func(t *testing.T) {
		for _, c := range []*cluster.Cluster{first, second} {
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
			requireNoProcess(t, c.Dir())
		}
		if _, err := os.Stat(filepath.Join(first.Dir(), "logs", "kwok.log")); err != nil {
			t.Errorf("the log of the component that died: %v", err)
		}
		if _, err := os.Stat(second.Dir()); !os.IsNotExist(err) {
			t.Errorf("the directory of the other cluster is still there: %v", err)
		}
	})
}

func start(t *testing.T, options cluster.Options) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	return c
}

func deploymentGetsReadyPods(t *testing.T, c *cluster.Cluster) {
	client := clientOf(t, c.RESTConfig())
	deploy(t, client, "web", 3, "nginx")
	eventually(t, "the Deployment is available", func(ctx context.Context) (bool, error) {
		got, err := client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
		return err == nil && got.Status.AvailableReplicas == 3, err
	})
	for _, pod := range podsOf(t, client, "web") {
		if pod.Spec.NodeName == "" || pod.Status.PodIP == "" || pod.Status.HostIP == "" || pod.Status.StartTime == nil {
			t.Errorf("Pod %s lacks what a kubelet reports: node %q, IP %q, host IP %q, start %v",
				pod.Name, pod.Spec.NodeName, pod.Status.PodIP, pod.Status.HostIP, pod.Status.StartTime)
		}
		if pod.Status.Phase != corev1.PodRunning || !pod.Status.ContainerStatuses[0].Ready {
			t.Errorf("Pod %s is %s, container %+v", pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses[0])
		}
	}
}

func serviceAccountObeysRBAC(t *testing.T, c *cluster.Cluster) {
	ctx, admin := t.Context(), clientOf(t, c.RESTConfig())
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	if _, err := admin.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	path, err := c.ServiceAccountKubeconfig(ctx, "default", "robot")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client := clientOf(t, config)
	if _, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("without a role: %v, want forbidden", err)
	}
	grant(t, admin, "robot", rbacv1.PolicyRule{Verbs: []string{"list", "watch", "create"}, APIGroups: []string{""}, Resources: []string{"configmaps"}})
	eventually(t, "the role takes effect", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		return err == nil, err
	})
	watch, err := client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()

	requests, reader := map[string]bool{}, cluster.AuditReader{Path: c.AuditLog()}
	eventually(t, "the audit log has both lists and the watch", func(context.Context) (bool, error) {
		events, err := reader.Next()
		for _, e := range events {
			if e.User == "system:serviceaccount:default:robot" {
				requests[fmt.Sprintf("%s of %s in %s: %s %d", e.Verb, e.Resource, e.Namespace, e.Stage, e.Code)] = true
			}
		}
		return requests["list of configmaps in default: ResponseComplete 403"] &&
			requests["list of configmaps in default: ResponseComplete 200"] &&
			requests["watch of configmaps in default: ResponseStarted 200"], err
	})
}

func imageCannotBePulled(t *testing.T, c *cluster.Cluster) {
	client := clientOf(t, c.RESTConfig())
	deploy(t, client, "typo", 1, "does-not-exist:1")
	eventually(t, "the container waits in ImagePullBackOff", func(context.Context) (bool, error) {
		waiting := waitingOf(podsOf(t, client, "typo"))
		return waiting != nil && waiting.Reason == "ImagePullBackOff" &&
			strings.HasPrefix(waiting.Message, `Back-off pulling image "does-not-exist:1"`), nil
	})
	if pod := podsOf(t, client, "typo")[0]; pod.Status.Phase != corev1.PodPending || isReady(pod) {
		t.Errorf("the Pod is %s, ready %v", pod.Status.Phase, isReady(pod))
	}
}

func containerCrashes(t *testing.T, c *cluster.Cluster) {
	client := clientOf(t, c.RESTConfig())
	deploy(t, client, "fragile", 1, "crash:1")
	eventually(t, "the container waits in CrashLoopBackOff", func(context.Context) (bool, error) {
		waiting := waitingOf(podsOf(t, client, "fragile"))
		return waiting != nil && waiting.Reason == "CrashLoopBackOff", nil
	})
	pod := podsOf(t, client, "fragile")[0]
	status := pod.Status.ContainerStatuses[0]
	if status.RestartCount == 0 || status.LastTerminationState.Terminated == nil || status.LastTerminationState.Terminated.ExitCode != 1 || isReady(pod) {
		t.Errorf("container %+v, Pod ready %v", status, isReady(pod))
	}
}

func nodeFollowsAnnotation(t *testing.T, c *cluster.Cluster) {
	client := clientOf(t, c.RESTConfig())
	for _, want := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionUnknown, corev1.ConditionTrue} {
		node, err := client.CoreV1().Nodes().Get(t.Context(), "node-3", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		patch := []byte(`{"metadata":{"annotations":{"` + cluster.ReadyAnnotation + `":"` + string(want) + `"}}}`)
		if _, err := client.CoreV1().Nodes().Patch(t.Context(), node.Name, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the node is ready "+string(want), func(ctx context.Context) (bool, error) {
			node, err := client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady {
					return condition.Status == want, nil
				}
			}
			return false, nil
		})
	}
}

func apiServerRestarts(t *testing.T, c *cluster.Cluster) {
	client := clientOf(t, c.RESTConfig())
	if err := errors.Join(c.CompactEtcd(t.Context()), c.KillComponent(cluster.APIServer)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Discovery().ServerVersion(); err == nil {
		t.Error("a killed API server answers")
	}
	if err := c.StartComponent(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	deploy(t, client, "after", 1, "nginx")
	eventually(t, "the other components carry on", func(context.Context) (bool, error) {
		pods := podsOf(t, client, "after")
		return len(pods) == 1 && isReady(pods[0]), nil
	})
	if err := c.Err(); err != nil {
		t.Error(err)
	}
}

func deathIsReported(t *testing.T, c *cluster.Cluster) {
	content, err := os.ReadFile(filepath.Join(c.Dir(), "pids", string(cluster.Kwok)))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Done():
	case <-time.After(soon):
		t.Fatal("the death of a component goes unnoticed")
	}
	if err := c.Err(); err == nil || !strings.Contains(err.Error(), "kwok has ended") || !strings.Contains(err.Error(), c.Dir()+"/logs/kwok.log") {
		t.Errorf("Err() = %v, want the component and its log", err)
	}
}

// The programs of this cluster are scripts that fail.
func TestStartReportsTheComponentThatFails(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the name of the programs' directory")
	}
	t.Setenv(parts.AssetsEnv, "")
	programs, err := parts.Ensure(t.Context(), false, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	cache, dir := t.TempDir(), t.TempDir()
	broken := filepath.Join(cache, filepath.Base(filepath.Dir(programs.Kubectl)))
	t.Setenv(parts.CacheEnv, cache)
	if err := os.Mkdir(broken, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"components", "servers", "kubectl"} {
		if err := os.WriteFile(filepath.Join(broken, program), []byte("#!/bin/sh\necho no space left\nexit 1\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	_, err = cluster.Start(t.Context(), cluster.Options{Dir: dir})
	if err == nil {
		t.Fatal("the cluster starts")
	}
	for _, want := range []string{"etcd has ended", "no space left", filepath.Join(dir, "logs", "etcd.log")} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

// --- what the tests are written in ---

func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func deploy(t *testing.T, client kubernetes.Interface, name string, replicas int32, image string) {
	t.Helper()
	labels := map[string]string{"app": name}
	_, err := client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: image}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func grant(t *testing.T, client kubernetes.Interface, account string, rule rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: account}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}
	if _, err := client.RbacV1().Roles("default").Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta,
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: "default"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
	}
	if _, err := client.RbacV1().RoleBindings("default").Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func podsOf(t *testing.T, client kubernetes.Interface, app string) []corev1.Pod {
	t.Helper()
	list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func waitingOf(pods []corev1.Pod) *corev1.ContainerStateWaiting {
	if len(pods) == 0 || len(pods[0].Status.ContainerStatuses) == 0 {
		return nil
	}
	return pods[0].Status.ContainerStatuses[0].State.Waiting
}

func isReady(pod corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func eventually(t *testing.T, what string, isTrue func(context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		ok, err := isTrue(ctx)
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s (last error: %v)", soon, what, err)
		case <-ticker.C:
		}
	}
}

// requireNoProcess fails the test if a process names dir among its arguments,
// as every component does.
func requireNoProcess(t *testing.T, dir string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, path := range paths {
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(dir+"/")) {
			left = append(left, string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
		}
	}
	if diff := cmp.Diff([]string(nil), left); diff != "" {
		t.Errorf("processes that are left (-want +got):\n%s", diff)
	}
}
