package monitoring

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"k8s.io/apimachinery/pkg/api/meta"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// TestOnACluster runs all controllers on a local cluster, with one Icecream that gets
// Ready and one that does not, and looks at what they serve.
func TestOnACluster(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: this test boots a cluster")
	}
	binary, remove, err := lab.BuildController(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	l := lab.New(t, lab.Options{Binary: binary, Nodes: 3})
	t.Setenv("GOMEMLIMIT", "64MiB") // as in a Pod
	files, err := filepath.Glob(l.Path("artifacts/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := filepath.Base(file); name == "install.yaml" || name == "kustomization.yaml" {
			continue // the controller does not run in a Pod here
		}
		if _, err := l.TryKubectl(t.Context(), "", "apply", "-f", file); err != nil {
			t.Fatal(err)
		}
	}
	n := l.NewNamespace(t)
	n.Controller = l.StartController(t, "-controllers="+strings.Join(append([]string{"*"}, l.OptionalControllers(t)...), ","), "-leader-elect", "-leader-elect-resource-namespace="+lab.SystemNamespace,
		"-bind-address=127.0.0.1:0", "-insecure-bind-address=127.0.0.1:0")
	n.Apply(t, icecreams)
	n.EventuallyReady(t, "good")
	n.EventuallyIcecream(t, "bad", "says why it is not ready", func(ice *v1alpha1.Icecream) error {
		if ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Reason != v1alpha1.ReasonImagePullBackOff {
			return fmt.Errorf("condition Ready is %+v", ready)
		}
		return nil
	})

	n.Kubectl(t, "annotate", "node", "node-2", "controller.nicoleh.io/reboot-now=")
	n.Kubectl(t, "annotate", "node", "node-3", "controller.nicoleh.io/reboot-in-progress=x")
	n.Kubectl(t, "annotate", "node", "node-1", "controller.nicoleh.io/reboot-needed=")

	text := scrape(t, n)

	t.Run("promlint", func(t *testing.T) { lint(t, text) })
	t.Run("queries", func(t *testing.T) { findAll(t, text+refusals(t, n)) })
}

const icecreams = `
apiVersion: controller.nicoleh.io/v1alpha1
kind: Icecream
metadata: {name: good}
---
apiVersion: controller.nicoleh.io/v1alpha1
kind: Icecream
metadata: {name: bad}
spec: {image: does-not-exist}
`

// scrape returns what is on /metrics once the controller leads and has counted both
// Icecreams.
func scrape(t *testing.T, n *lab.Namespace) (text string) {
	t.Helper()
	url := "http://" + n.Controller.Address(t, false) + "/metrics"
	n.Eventually(t, "the metrics tell of both Icecreams", func(ctx context.Context) error {
		code, body, err := lab.Get(ctx, url, "")
		if err != nil {
			return err
		}
		text = body
		for _, want := range []string{
			`icecream_objects{icecream_namespace="` + n.Name + `",ready="True",`,
			`icecream_objects{icecream_namespace="` + n.Name + `",ready="False",`,
			"leader_election_master_status{",
			`nodereboot_unavailable_seconds{node="node-3",reason="Rebooting"}`,
		} {
			if code != http.StatusOK || !strings.Contains(body, "\n"+want) {
				return fmt.Errorf("status code %d, and no %s", code, want)
			}
		}
		return nil
	})
	return text
}

// refusals is what the API server counts of what policies refuse.
func refusals(t *testing.T, n *lab.Namespace) (text string) {
	t.Helper()
	attempts := map[string][]string{ // by what counts them
		`apiserver_validating_admission_policy_check_total{enforcement_action="deny",.*policy="k8s-controller-icecream-writes"`: {"create", "deployment", "theirs", "--image=registry.example/theirs", "--as=system:serviceaccount:" + lab.SystemNamespace + ":" + lab.ServiceAccount},
		`apiserver_validating_admission_policy_check_total{enforcement_action="deny",.*policy="k8s-controller-reboot-agent"`:    rebootTrial,
		`apiserver_request_total{code="403",.*dry_run="All",.*resource="nodes",.*verb="PATCH"`:                                  rebootTrial,
	}
	for counted, attempt := range attempts {
		n.Eventually(t, "the API server counts "+counted, func(ctx context.Context) error {
			_, refused := n.TryKubectl(ctx, "", attempt...)
			if refused == nil {
				return errors.New("it refuses nothing")
			}
			body, err := n.Lab.Kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
			if err != nil {
				return err
			}
			name, _, _ := strings.Cut(counted, "{")
			lines := regexp.MustCompile(`(?m)^(# TYPE `+name+` .*|`+counted+`.*)\n`).FindAllString(string(body), -1)
			if len(lines) < 2 {
				return fmt.Errorf("it counts %q after %w", lines, refused)
			}
			text += strings.Join(lines, "")
			return nil
		})
	}
	return text
}

// rebootTrial is what an agent of nodereboot tries, to see that a policy refuses it.
var rebootTrial = []string{"annotate", "node", "node-1", "controller.nicoleh.io/try=x", "--dry-run=server", "--as=system:serviceaccount:k8s-controller-reboot-agent:k8s-controller-reboot-agent", "--as-user-extra=authentication.kubernetes.io/node-name=node-1"}

// lint has Prometheus' own linter read a scrape: our series, and those of others.
func lint(t *testing.T, text string) {
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
