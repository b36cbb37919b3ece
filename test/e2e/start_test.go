package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// If only another start can fix a problem, the controller exits, with a single line that
// says why.
func TestStartThatCannotSucceed(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	good := n.Lab.Kubeconfig()
	for _, tt := range []struct {
		name string
		args func(t *testing.T) []string
		want []string // what the line contains
	}{{
		name: "the token is not accepted",
		args: func(t *testing.T) []string {
			return []string{"-kubeconfig=" + editKubeconfig(t, good, func(c *clientcmdapi.Config) {
				for name := range c.AuthInfos {
					c.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "stale"}
				}
			})}
		},
		want: []string{"does not accept the credentials", "-kubeconfig"},
	}, {
		name: "the server has a certificate of another authority",
		args: func(t *testing.T) []string {
			other, _, err := cert.GenerateSelfSignedCertKey("elsewhere.example", nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			return []string{"-kubeconfig=" + editKubeconfig(t, good, func(c *clientcmdapi.Config) {
				for _, cluster := range c.Clusters {
					cluster.CertificateAuthorityData, cluster.CertificateAuthority = other, ""
				}
			})}
		},
		want: []string{"certificate", "-kubeconfig"},
	}, {
		name: "the address is taken",
		args: func(t *testing.T) []string {
			busy := n.StartController(t, "-bind-address=127.0.0.1:0")
			return []string{"-kubeconfig=" + good, "-bind-address=" + busy.Address(t, true)}
		},
		want: []string{"address already in use", "-bind-address"},
	}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := n.Lab.NewControllerWith(tt.args(t)...)
			c.Start(t)
			last := c.Fails(t)
			if !strings.HasPrefix(last, "controller: ") {
				t.Errorf("the last line of the log is %q", last)
			}
			for _, want := range tt.want {
				if !strings.Contains(last, want) {
					t.Errorf("the last line of the log is %q, which does not contain %q", last, want)
				}
			}
			if log := c.Log(); strings.Count(log, "\n") > 3 || strings.Contains(log, "goroutine") {
				t.Errorf("the log should have one line about the problem, and is:\n%s", lab.Clip(log))
			}
		})
	}
	t.Run("the log is for programs", func(t *testing.T) {
		t.Parallel()
		c := n.Lab.NewControllerWith("-kubeconfig="+filepath.Join(t.TempDir(), "absent"), "-logging-format=json")
		c.Start(t)
		var last struct{ Msg, Err string }
		if err := json.Unmarshal([]byte(c.Fails(t)), &last); err != nil || last.Msg != "Exiting" || !strings.Contains(last.Err, "absent") {
			t.Errorf("%v; the log is:\n%s", err, lab.Clip(c.Log()))
		}
	})
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
	requireWaits(t, n, "the API server is unreachable", "connection refused", "kubeconfig")
	requireProbes(t, c, http.StatusOK, http.StatusInternalServerError)

	if err := l.StartComponent(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	requireWaits(t, n, "does not know this resource", "kubectl apply -f artifacts/examples/crd-icecream.yaml")
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
	for _, tt := range []struct {
		name  string
		start func(t *testing.T, n *lab.Namespace) *lab.Controller
		words []string
	}{{
		name: "the permission is missing",
		start: func(t *testing.T, n *lab.Namespace) *lab.Controller {
			t.Helper()
			// Not under the service account that has to get along with its permissions.
			n.Kubectl(t, "create", "rolebinding", "reading", "--clusterrole="+lab.ServiceAccount, "--serviceaccount="+n.Name+":reader")
			kubeconfig := editKubeconfig(t, n.Lab.Kubeconfig(), func(c *clientcmdapi.Config) {
				for _, user := range c.AuthInfos {
					user.Impersonate = "system:serviceaccount:" + n.Name + ":reader"
				}
			})
			c := n.Lab.NewControllerWith("-kubeconfig="+kubeconfig, "-namespace="+n.Name, "-leader-elect", "-bind-address=127.0.0.1:0")
			c.StartForTest(t)
			return c
		},
		words: []string{"Error retrieving lease lock", "is forbidden"},
	}, {
		name: "the namespace is missing",
		start: func(t *testing.T, n *lab.Namespace) *lab.Controller {
			t.Helper()
			c := n.Lab.NewControllerWith("-kubeconfig="+n.Lab.Kubeconfig(), "-namespace="+n.Name, "-leader-elect", "-leader-elect-resource-namespace=absent", "-bind-address=127.0.0.1:0")
			c.StartForTest(t)
			return c
		},
		words: []string{"Error initially creating lease lock", `namespaces \"absent\" not found`},
	}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := NewQuietNamespace(t)
			c := tt.start(t, n)
			n.Eventually(t, "the log says what the process is waiting for", func(context.Context) error {
				for line := range strings.Lines(c.Log()) {
					if lab.ContainsAll(line, tt.words...) {
						return nil
					}
				}
				return fmt.Errorf("the log is\n%s", c.Log())
			})
			requireProbes(t, c, http.StatusOK, http.StatusInternalServerError)
			if _, body := c.Get(t, "/readyz", ""); !strings.Contains(body, "[-]lease") || !strings.Contains(body, "[+]preflight") {
				t.Errorf("/readyz says %s", body)
			}
		})
	}
}

// requireWaits requires that the controller logs once, in a line with these words, what
// it is waiting for, and then logs nothing for ten seconds, in which it tries again.
func requireWaits(t *testing.T, n *lab.Namespace, words ...string) {
	t.Helper()
	lines := func() (found []string) {
		for line := range strings.Lines(n.Controller.Log()) {
			if strings.Contains(line, words[0]) {
				found = append(found, line)
			}
		}
		return found
	}
	n.Eventually(t, "the log says what the controller is waiting for", func(context.Context) error {
		if len(lines()) == 0 {
			return fmt.Errorf("the log is\n%s", n.Controller.Log())
		}
		return nil
	})
	for _, word := range words {
		if said := lines()[0]; !strings.Contains(said, word) {
			t.Errorf("the log says %q, which does not contain %q", said, word)
		}
	}
	serving := regexp.MustCompile(`(?m)^.*"Serving".*\n`) // starts at the same time
	said := serving.ReplaceAllString(n.Controller.Log(), "")
	time.Sleep(10 * time.Second)
	if more := strings.TrimPrefix(serving.ReplaceAllString(n.Controller.Log(), ""), said); more != "" {
		t.Errorf("the log continues:\n%s", more)
	}
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

// editKubeconfig writes a changed copy of a kubeconfig and returns its path.
func editKubeconfig(t *testing.T, path string, change func(*clientcmdapi.Config)) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	change(config)
	edited := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, edited); err != nil {
		t.Fatal(err)
	}
	return edited
}
