package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// timestamp is the annotation that a Pod gets.
const timestamp = "timestamp"

// The Pods that ask for it get a timestamp, and no others. In one namespace, the controller
// needs only a Role there, and no permission that is only needed for Icecreams.
func TestPodtimestamp(t *testing.T) {
	t.Parallel()
	l := NewLab(t, lab.Options{})
	kubectl(t, l, "apply", "-f", l.Path("artifacts/rbac-podtimestamp.yaml"))
	kubectl(t, l, "delete", "clusterrolebinding/"+lab.IcecreamRole, "clusterrole/"+lab.IcecreamRole)
	n, other := l.NewNamespace(t), l.NewNamespace(t)
	n.Kubectl(t, "create", "serviceaccount", lab.ServiceAccount)
	n.Kubectl(t, "create", "rolebinding", "stamping", "--clusterrole=k8s-controller-podtimestamp", "--serviceaccount="+n.Name+":"+lab.ServiceAccount)
	c, err := l.NewController(t.Context(), n.Name, lab.ServiceAccount, "-controllers=podtimestamp", "-namespace="+n.Name)
	if err != nil {
		t.Fatal(err)
	}
	n.Controller = c
	c.StartForTest(t)
	begin := time.Now().Truncate(time.Second)
	createPod(t, other, "elsewhere", asking)
	createPod(t, n, "silent")
	createPod(t, n, "others", asking, annotated(timestamp, "tomorrow"))
	createPod(t, n, "mirror", asking, annotated(corev1.MirrorPodAnnotationKey, "hash"), func(pod *corev1.Pod) { pod.Spec.NodeName = "node-1" })
	createPod(t, n, "late")
	createPod(t, n, "asking", asking)
	n.Kubectl(t, "annotate", "pod/late", "addtime=true")
	for _, name := range []string{"asking", "late"} {
		stamp := eventuallyStamped(t, n, name)
		if at, err := time.Parse("2006-01-02T15:04:05Z", stamp); err != nil || at.Before(begin) || at.After(time.Now()) {
			t.Errorf("%s has timestamp %q", name, stamp)
		}
		n.Eventually(t, "an event says so", func(ctx context.Context) error {
			told, err := n.TryKubectl(ctx, "", "get", "events", "--field-selector=involvedObject.name="+name)
			if err == nil && !strings.Contains(told, "Set annotation timestamp to "+stamp) {
				err = fmt.Errorf("the events are\n%s", told)
			}
			return err
		})
	}
	want := map[string]string{"asking": timestampOf(t, n, "asking"), "late": timestampOf(t, n, "late"), "others": "tomorrow"}
	if diff := cmp.Diff(want, timestampsOf(t, n)); diff != "" {
		t.Errorf("the timestamps differ (-want +got):\n%s", diff)
	}
	if found := timestampOf(t, other, "elsewhere"); found != "" {
		t.Errorf("the Pod in another namespace has %q", found)
	}

	if refused := l.Requests(t).By(c.User).Refused(); len(refused) > 0 {
		t.Errorf("requests were refused: %s", refused)
	}
}

// createPod creates a Pod, which no scheduler looks at.
func createPod(t *testing.T, n *lab.Namespace, name string, edits ...func(*corev1.Pod)) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "c", Image: "registry.example/c"}}, AutomountServiceAccountToken: new(bool)},
	}
	for _, edit := range edits {
		edit(pod)
	}
	if _, err := n.Pods().Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func asking(pod *corev1.Pod) { annotated("addtime", "")(pod) }

func annotated(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value) }
}

// timestampsOf returns the timestamps of all Pods that have one, by Pod name.
func timestampsOf(t *testing.T, n *lab.Namespace) map[string]string {
	t.Helper()
	list, err := n.Pods().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, pod := range list.Items {
		if stamp, isStamped := pod.Annotations[timestamp]; isStamped {
			found[pod.Name] = stamp
		}
	}
	return found
}

func timestampOf(t *testing.T, n *lab.Namespace, name string) string {
	t.Helper()
	return timestampsOf(t, n)[name]
}

func eventuallyStamped(t *testing.T, n *lab.Namespace, name string) (stamp string) {
	t.Helper()
	n.Eventually(t, name+" is stamped", func(context.Context) error {
		if stamp = timestampOf(t, n, name); stamp == "" {
			return fmt.Errorf("the timestamps are %v", timestampsOf(t, n))
		}
		return nil
	})
	return stamp
}

// A CustomResourceDefinition that is missing keeps only its controller from working.
func TestControllerThatWaitsKeepsNoOtherFromWorking(t *testing.T) {
	t.Parallel()
	l := NewLab(t, lab.Options{})
	crd := l.Path(crdFile)
	n := l.NewNamespace(t)
	n.Kubectl(t, "delete", "-f", crd)
	c := l.NewControllerWith("-kubeconfig="+l.Kubeconfig(), "-bind-address=127.0.0.1:0", "-leader-elect", "-controllers=*,podtimestamp")
	c.StartForTest(t)
	n.Controller = c
	createPod(t, n, "asking", asking)
	eventuallyStamped(t, n, "asking")
	requireProbes(t, c, http.StatusOK, http.StatusInternalServerError)

	n.Kubectl(t, "apply", "-f", crd)
	n.Kubectl(t, "wait", `--for=jsonpath={.status.conditions[?(@.type=="Established")].status}=True`, "crd/icecreams.controller.nicoleh.io")
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "vanilla")
	requireProbes(t, c, http.StatusOK, http.StatusOK)
}
