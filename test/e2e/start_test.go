package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// If only another start can fix a problem, the controller exits, with a single line that says why.
func TestStartThatCannotSucceed(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	config, err := clientcmd.LoadFromFile(n.Lab.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "stale"}
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	c := n.Lab.NewControllerWith("-kubeconfig=" + kubeconfig)
	c.Start(t)
	if last := c.Fails(t); !strings.HasPrefix(last, "controller: ") || !lab.ContainsAll(last, "does not accept the credentials", "-kubeconfig") {
		t.Errorf("the last line of the log is %q", last)
	}
	if log := c.Log(); strings.Count(log, "\n") > 3 || strings.Contains(log, "goroutine") {
		t.Errorf("the log should have one line about the problem, and is:\n%s", lab.Clip(log))
	}

	forPrograms := n.Lab.NewControllerWith("-kubeconfig="+kubeconfig, "-logging-format=json")
	forPrograms.Start(t)
	var last struct{ Msg, Err string }
	if err := json.Unmarshal([]byte(forPrograms.Fails(t)), &last); err != nil || last.Msg != "Exiting" || !strings.Contains(last.Err, "-kubeconfig") {
		t.Errorf("%v; the log is:\n%s", err, lab.Clip(forPrograms.Log()))
	}
}

// If a problem can be fixed in the cluster, the controller waits for that, and logs what it
// is waiting for.
func TestStartThatWaits(t *testing.T) {
	t.Parallel()
	l := NewLab(t, lab.Options{})
	crd := l.Path(crdFile)
	n := l.NewNamespace(t)
	n.Kubectl(t, "delete", "-f", crd)
	if err := l.KillComponent(cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	c := l.NewControllerWith("-kubeconfig="+l.Kubeconfig(), "-bind-address=127.0.0.1:0", "-leader-elect")
	c.StartForTest(t)
	n.Controller = c
	eventuallyWaits(t, n, "the API server is unreachable", "connection refused", "kubeconfig")
	requireProbes(t, c, http.StatusOK, http.StatusInternalServerError)

	if err := l.StartComponent(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	eventuallyWaits(t, n, "does not know this resource", "kubectl apply -f artifacts/examples/crd-icecream.yaml")
	requireProbes(t, c, http.StatusOK, http.StatusInternalServerError)

	n.Kubectl(t, "apply", "-f", crd)
	applied := time.Now()
	n.Kubectl(t, "wait", `--for=jsonpath={.status.conditions[?(@.type=="Established")].status}=True`, "crd/icecreams.controller.nicoleh.io")
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	// While the API server was away, nodes may have become unreachable, so the test
	// does not wait for a Pod.
	eventuallyHasDeployment(t, n, "vanilla")
	t.Logf("an Icecream had its Deployment %s after the CustomResourceDefinition was applied", time.Since(applied).Round(time.Millisecond))
	requireProbes(t, c, http.StatusOK, http.StatusOK)
}

// A process that cannot reach its Lease can never lead, so it is not ready, and its log says why.
func TestLeaseThatCannotBeReached(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	n.Kubectl(t, "create", "rolebinding", "reading", "--clusterrole="+lab.ServiceAccount, "--serviceaccount="+n.Name+":default")
	withoutPermission, err := n.Lab.ServiceAccountKubeconfig(t.Context(), n.Name, "default")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		kubeconfig, namespace string
		words                 []string
	}{
		{withoutPermission, n.Name, []string{"Error retrieving lease lock", "is forbidden"}},
		{n.Lab.Kubeconfig(), "absent", []string{"Error initially creating lease lock", `namespaces \"absent\" not found`}},
	} {
		n.Controller = n.Lab.NewControllerWith("-kubeconfig="+row.kubeconfig, "-namespace="+n.Name, "-bind-address=127.0.0.1:0",
			"-leader-elect", "-leader-elect-resource-namespace="+row.namespace)
		n.Controller.StartForTest(t)
		eventuallyWaits(t, n, row.words...)
		requireProbes(t, n.Controller, http.StatusOK, http.StatusInternalServerError)
	}
}

// eventuallyWaits waits until the controller logs, in a line with these words, what it is waiting for.
func eventuallyWaits(t *testing.T, n *lab.Namespace, words ...string) {
	t.Helper()
	n.Eventually(t, "the log says what the controller is waiting for", func(context.Context) error {
		for line := range strings.Lines(n.Controller.Log()) {
			if lab.ContainsAll(line, words...) {
				return nil
			}
		}
		return fmt.Errorf("the log is\n%s", n.Controller.Log())
	})
}

// requireProbes requires that /livez and /readyz return these status codes, and details
// only on a failure or if asked for them.
func requireProbes(t *testing.T, c *lab.Controller, live, ready int) {
	t.Helper()
	for path, want := range map[string]int{"/livez": live, "/readyz": ready, "/livez?verbose": live, "/readyz?verbose": ready} {
		code, body := c.Get(t, path, "")
		if code != want {
			t.Errorf("%s returns %d: %s, want %d", path, code, body, want)
		}
		if isLong := strings.Contains(body, "preflight") || strings.Contains(body, "icecream"); isLong != (code != http.StatusOK || strings.Contains(path, "verbose")) {
			t.Errorf("%s returns %d with the wrong amount of detail: %s", path, code, body)
		}
	}
}
