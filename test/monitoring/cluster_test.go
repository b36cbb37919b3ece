package monitoring

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"nicoleh.io/k8s-controller/test/lab"
)

// TestOnACluster runs each program on a local cluster, as in a release of its name, does what
// testdata/PROGRAM/cluster.txt says, and makes every query of its alerts and its dashboard about
// what the program serves then.
func TestOnACluster(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: this test boots a cluster")
	}
	l := lab.New(t, lab.Options{Nodes: 3})
	t.Setenv("GOMEMLIMIT", "64MiB") // as in a Pod
	var binaries lab.Binaries
	t.Cleanup(func() {
		if err := binaries.Remove(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range programs(t) {
		t.Run(name, func(t *testing.T) {
			program := lab.App(name)
			if name == icecream {
				program = lab.Icecream
			}
			n := l.NewNamespace(t)
			for _, manifest := range program.Manifests {
				lab.Kubectl(t, l, "apply", "-f", l.Path(manifest))
			}
			kubeconfig, err := l.ServiceAccountKubeconfig(t.Context(), program.Namespace, program.Account)
			if err != nil {
				t.Fatal(err)
			}
			n.Controller = l.NewProgram(binaries.Path(t, program.Main), "-kubeconfig="+kubeconfig,
				"-leader-elect-resource-namespace="+program.Namespace, "-bind-address=127.0.0.1:0", "-insecure-bind-address=127.0.0.1:0")
			n.Controller.StartForTest(t)
			ask := prometheus(t, program.Account, happen(t, n, name))
			for _, q := range queries(t, name, program.Account) {
				checkQuery(t, q, ask)
			}
		})
	}
}

// happen does what a program's file says, and returns what the program serves then, and what the
// API server counts of refusals.
func happen(t *testing.T, n *lab.Namespace, program string) (scrape string) {
	t.Helper()
	var counted string
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
	n.Eventually(t, "the program serves its metrics", func(context.Context) error {
		scrape = n.Controller.Metrics(t)
		for _, want := range series {
			if !strings.Contains(scrape, "\n"+want) {
				return fmt.Errorf("there is no %s", want)
			}
		}
		return nil
	})
	return scrape + counted
}

// refused tries something until the API server counts that it has refused it, and returns the
// lines of the counter, which is the beginning of a regular expression.
func refused(t *testing.T, n *lab.Namespace, counter string, attempt []string, stdin string) (lines string) {
	t.Helper()
	n.Eventually(t, "the API server counts "+counter, func(ctx context.Context) error {
		if _, err := n.Lab.TryKubectl(ctx, stdin, attempt...); err == nil {
			return errors.New("it refuses nothing")
		}
		body, err := n.Lab.Kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return err
		}
		found := regexp.MustCompile(`(?m)^`+counter+`.*\n`).FindAllString(string(body), -1)
		if len(found) == 0 {
			return errors.New("it counts nothing")
		}
		lines = strings.Join(found, "")
		return nil
	})
	return lines
}
