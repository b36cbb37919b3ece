package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

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
	createPod(t, other, "elsewhere", "--annotations=addtime=")
	createPod(t, n, "silent")
	createPod(t, n, "late")
	createPod(t, n, "asking", "--annotations=addtime=")
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
	for _, found := range []string{timestampOf(t, other, "elsewhere"), timestampOf(t, n, "silent")} {
		if found != "" {
			t.Errorf("a Pod that should have none has timestamp %q", found)
		}
	}
	if refused := l.Requests(t).By(c.User).Refused(); len(refused) > 0 {
		t.Errorf("requests were refused: %s", refused)
	}
}

// createPod creates a Pod, which no scheduler looks at.
func createPod(t *testing.T, n *lab.Namespace, name string, flags ...string) {
	t.Helper()
	n.Kubectl(t, append([]string{"run", name, "--image=registry.example/c", `--overrides={"spec":{"schedulerName":"nobody"}}`}, flags...)...)
}

// timestampOf returns the timestamp of a Pod; empty if it has none.
func timestampOf(t *testing.T, n *lab.Namespace, name string) string {
	t.Helper()
	return n.Kubectl(t, "get", "pod", name, "--output=jsonpath={.metadata.annotations.timestamp}")
}

func eventuallyStamped(t *testing.T, n *lab.Namespace, name string) (stamp string) {
	t.Helper()
	n.Eventually(t, name+" is stamped", func(context.Context) error {
		if stamp = timestampOf(t, n, name); stamp == "" {
			return errors.New("it is not")
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
	createPod(t, n, "asking", "--annotations=addtime=")
	eventuallyStamped(t, n, "asking")
	requireProbes(t, c, http.StatusOK, http.StatusInternalServerError)

	n.Kubectl(t, "apply", "-f", crd)
	n.Kubectl(t, "wait", `--for=jsonpath={.status.conditions[?(@.type=="Established")].status}=True`, "crd/icecreams.controller.nicoleh.io")
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "vanilla")
	requireProbes(t, c, http.StatusOK, http.StatusOK)
}
