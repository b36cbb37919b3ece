package monitoring

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"nicoleh.io/k8s-controller/test/lab"
)

// TestOnACluster runs each program on a local cluster, as in a release of its name, and looks at
// what it serves after what testdata/PROGRAM/cluster.txt does.
func TestOnACluster(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: this test boots a cluster")
	}
	l := lab.New(t, lab.Options{Nodes: 3})
	t.Setenv("GOMEMLIMIT", "64MiB") // as in a Pod
	for _, program := range programs(t) {
		t.Run(program, func(t *testing.T) {
			source, release, manifest := "./apps/"+program, program, "apps/"+program+"/install.yaml"
			if program == icecream {
				source, release, manifest = ".", lab.ServiceAccount, "artifacts/install.yaml"
			}
			n := l.NewNamespace(t)
			for _, args := range [][]string{
				{"apply", "-f", l.Path(manifest)},
				{"scale", "--replicas=0", "--namespace=" + release + "-system", "deployment/" + release}, // it does not run in a Pod here
			} {
				if _, err := l.TryKubectl(t.Context(), "", args...); err != nil {
					t.Fatal(err)
				}
			}
			n.Controller = start(t, l, source, release)
			text, counted := happen(t, n, program)
			t.Run("promlint", func(t *testing.T) { lint(t, text) })
			t.Run("queries", func(t *testing.T) { findAll(t, program, release, text+counted) })
		})
	}
}

// start runs a program with the account of a release until the end of the test.
func start(t *testing.T, l *lab.Lab, source, release string) *lab.Controller {
	t.Helper()
	binary, remove, err := lab.Build(t.Context(), ".", source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	kubeconfig, err := l.ServiceAccountKubeconfig(t.Context(), release+"-system", release)
	if err != nil {
		t.Fatal(err)
	}
	c := l.NewProgram(binary, "-kubeconfig="+kubeconfig, "-leader-elect-resource-namespace="+release+"-system",
		"-bind-address=127.0.0.1:0", "-insecure-bind-address=127.0.0.1:0")
	c.StartForTest(t)
	return c
}

// happen does what a program's file says, and returns what is on its /metrics then, and what the
// API server counts of refusals.
func happen(t *testing.T, n *lab.Namespace, program string) (text, counted string) {
	t.Helper()
	url := "http://" + n.Controller.Address(t, false) + "/metrics"
	series := []string{"leader_election_master_status{", "controller_cache_resource_version{"}
	datadriven.RunTest(t, "testdata/"+program+"/cluster.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "apply":
			if _, err := n.Lab.TryKubectl(t.Context(), d.Input, "apply", "-f", "-"); err != nil {
				t.Fatal(err)
			}
		case "kubectl":
			for line := range strings.Lines(d.Input) {
				n.Kubectl(t, strings.Fields(line)...)
			}
		case "serves":
			series = append(series, strings.Split(d.Input, "\n")...)
		case "refused":
			parts := append(strings.SplitN(d.Input, "\n", 3), "")
			counted += refused(t, n, parts[0], strings.Fields(parts[1]), parts[2])
		default:
			d.Fatalf(t, "unknown command %s", d.Cmd)
		}
		return d.Expected
	})
	n.Eventually(t, "the program serves its metrics", func(ctx context.Context) error {
		code, body, err := lab.Get(ctx, url, "")
		if err != nil {
			return err
		}
		text = body
		for _, want := range series {
			if code != http.StatusOK || !strings.Contains(body, "\n"+want) {
				return fmt.Errorf("status code %d, and no %s", code, want)
			}
		}
		return nil
	})
	return text, counted
}

// refused tries something until the API server counts that it has refused it, and returns the
// lines of the counter, which is the beginning of a regular expression.
func refused(t *testing.T, n *lab.Namespace, counter string, attempt []string, stdin string) (text string) {
	t.Helper()
	n.Eventually(t, "the API server counts "+counter, func(ctx context.Context) error {
		_, refused := n.Lab.TryKubectl(ctx, stdin, attempt...)
		if refused == nil {
			return errors.New("it refuses nothing")
		}
		body, err := n.Lab.Kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(counter, "{")
		lines := regexp.MustCompile(`(?m)^(# TYPE `+name+` .*|`+counter+`.*)\n`).FindAllString(string(body), -1)
		if len(lines) < 2 {
			return fmt.Errorf("it counts %q after %w", lines, refused)
		}
		text = strings.Join(lines, "")
		return nil
	})
	return text
}

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
