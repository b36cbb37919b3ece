package cluster_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
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
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
)

const (
	robot = "system:serviceaccount:default:robot"
	soon  = 30 * time.Second
)

// The two clusters are shared by the subtests, which keep to their own names.
func TestClustersSideBySide(t *testing.T) {
	if testing.Short() {
		t.Skip("boots two clusters")
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)

	var first, second *cluster.Cluster
	t.Run("both start", func(t *testing.T) {
		starts := make(chan error, 1)
		go func() {
			var err error
			second, err = cluster.Start(t.Context(), cluster.Options{Nodes: 1, WithoutControllerManager: true})
			starts <- err
		}()
		var err error
		first, err = cluster.Start(t.Context(), cluster.Options{AuditUsers: []string{robot}, Log: t.Output()})
		if err := errors.Join(err, <-starts); err != nil {
			t.Fatal(err)
		}
	})
	for _, c := range []*cluster.Cluster{first, second} {
		if c != nil {
			t.Cleanup(func() { _ = c.Stop() })
		}
	}
	if t.Failed() {
		t.FailNow()
	}

	t.Run("a Deployment gets ready Pods", func(t *testing.T) { deploymentGetsReadyPods(t, first) })
	t.Run("a StatefulSet gets ready Pods, and its Service finds them", func(t *testing.T) { statefulSetGetsReadyPods(t, first) })
	t.Run("the server is verified", func(t *testing.T) { serverIsVerified(t, first, second) })
	t.Run("a service account may do what it was given", func(t *testing.T) { serviceAccountObeysRBAC(t, first) })
	t.Run("an image that cannot be pulled", func(t *testing.T) { imageCannotBePulled(t, first) })
	t.Run("a container that crashes", func(t *testing.T) { containerCrashes(t, first) })
	t.Run("a node follows its annotation", func(t *testing.T) { nodeFollowsAnnotation(t, first) })
	t.Run("the API server restarts", func(t *testing.T) { apiServerRestarts(t, first) })
	t.Run("the controllers start late", func(t *testing.T) { controllersStartLate(t, second) })
	t.Run("a component that dies is reported", func(t *testing.T) { deathIsReported(t, second) })
	t.Run("nothing stays", func(t *testing.T) {
		for _, c := range []*cluster.Cluster{first, second} {
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
			requireNoProcess(t, c.Dir())
		}
		if _, err := os.Stat(first.Dir()); !os.IsNotExist(err) {
			t.Errorf("the directory of the first cluster is still there: %v", err)
		}
		if _, err := os.Stat(second.Log(cluster.Kwok)); err != nil {
			t.Errorf("the log of the component that died: %v", err)
		}
	})
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

func statefulSetGetsReadyPods(t *testing.T, c *cluster.Cluster) {
	client, labels := clientOf(t, c.RESTConfig()), map[string]string{"app": "db"}
	if _, err := client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: labels, Ports: []corev1.ServicePort{{Port: 5432}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().StatefulSets("default").Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas:    ptr.To[int32](2),
			ServiceName: "db",
			Selector:    &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "db", Image: "postgres"}}},
			},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the StatefulSet is available", func(ctx context.Context) (bool, error) {
		got, err := client.AppsV1().StatefulSets("default").Get(ctx, "db", metav1.GetOptions{})
		return err == nil && got.Status.AvailableReplicas == 2, err
	})
	eventually(t, "the Service has both Pods as endpoints, by their host names", func(ctx context.Context) (bool, error) {
		slices, err := client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=db"})
		if err != nil {
			return false, err
		}
		ready := map[string]bool{}
		for _, slice := range slices.Items {
			for _, endpoint := range slice.Endpoints {
				ready[ptr.Deref(endpoint.Hostname, "")] = ptr.Deref(endpoint.Conditions.Ready, false)
			}
		}
		return ready["db-0"] && ready["db-1"], nil
	})
}

func serverIsVerified(t *testing.T, c, other *cluster.Cluster) {
	config := c.RESTConfig()
	if config.Insecure || len(config.CAData) == 0 {
		t.Error("the kubeconfig does not have its server verified")
	}
	config.CAData = other.RESTConfig().CAData
	_, err := clientOf(t, config).Discovery().ServerVersion()
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
		t.Errorf("with another cluster's authority: %v, want an unknown authority", err)
	}
	stranger := c.RESTConfig()
	stranger.CertData, stranger.KeyData = other.RESTConfig().CertData, other.RESTConfig().KeyData
	_, err = clientOf(t, stranger).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("with another cluster's certificate: %v, want unauthorized", err)
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

	eventually(t, "the audit log has both lists and the watch, and nobody else's requests", func(context.Context) (bool, error) {
		events, err := cluster.ReadAudit(c.AuditLog())
		if err != nil {
			return false, err
		}
		codes := map[int]bool{}
		isWatched := false
		for _, event := range events {
			if event.User != robot {
				t.Fatalf("the audit log holds %+v, a request of another user", event)
			}
			if event.Verb == "list" && event.Resource == "configmaps" && event.Namespace == "default" {
				codes[event.Code] = true
			}
			isWatched = isWatched || event.Verb == "watch" && event.Stage == "ResponseStarted"
		}
		return codes[403] && codes[200] && isWatched, nil
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
	update(t, client, "typo", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "nginx" })
	eventually(t, "the corrected image runs", func(context.Context) (bool, error) {
		pods := podsOf(t, client, "typo")
		return len(pods) == 1 && isReady(pods[0]), nil
	})
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
	if err := c.KillComponent(cluster.APIServer); err != nil {
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

func controllersStartLate(t *testing.T, c *cluster.Cluster) {
	client := clientOf(t, c.RESTConfig())
	deploy(t, client, "late", 1, "nginx")
	if err := c.StartComponent(t.Context(), cluster.ControllerManager); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Pod is ready", func(context.Context) (bool, error) {
		pods := podsOf(t, client, "late")
		return len(pods) == 1 && isReady(pods[0]), nil
	})
}

func deathIsReported(t *testing.T, c *cluster.Cluster) {
	if err := c.StartComponent(t.Context(), cluster.Scheduler); err == nil {
		t.Error("a component was started twice")
	}
	if err := c.StopComponent(cluster.Scheduler); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Done():
		t.Fatalf("a component that was stopped counts as dead: %v", c.Err())
	default:
	}
	killRecorded(t, c.Dir(), cluster.Kwok)
	select {
	case <-c.Done():
	case <-time.After(soon):
		t.Fatal("the death of a component goes unnoticed")
	}
	if err := c.Err(); err == nil || !strings.Contains(err.Error(), "kwok has ended") || !strings.Contains(err.Error(), c.Log(cluster.Kwok)) {
		t.Errorf("Err() = %v, want the component, how it ended, and its log", err)
	}
}

func TestStartReportsTheComponentThatFails(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a cluster")
	}
	dir := t.TempDir()
	_, err := cluster.Start(t.Context(), cluster.Options{
		Dir:       dir,
		ExtraArgs: map[cluster.Component][]string{cluster.APIServer: {"--no-such-flag=1"}},
	})
	if err == nil {
		t.Fatal("the cluster starts")
	}
	for _, want := range []string{"kube-apiserver has ended", "unknown flag: --no-such-flag", filepath.Join(dir, "logs", "kube-apiserver.log")} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	requireNoProcess(t, dir)
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

func update(t *testing.T, client kubernetes.Interface, name string, change func(*appsv1.Deployment)) {
	t.Helper()
	eventually(t, "the Deployment is updated", func(ctx context.Context) (bool, error) {
		deployment, err := client.AppsV1().Deployments("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		change(deployment)
		_, err = client.AppsV1().Deployments("default").Update(ctx, deployment, metav1.UpdateOptions{})
		return err == nil, err
	})
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

// killRecorded kills a component behind the back of the package.
func killRecorded(t *testing.T, dir string, component cluster.Component) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "pids", string(component)))
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
}
