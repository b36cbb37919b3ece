package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/test/lab"
)

// Installed with one command, updated while users are at work, and gone again without taking anything along. The
// policies that come with it refuse nothing that the cluster's own policies add to Deployments. For other ways to
// install it, see hack/tools/charts/install.
func TestInstall(t *testing.T) {
	t.Parallel()
	l := NewLab(t, lab.Options{Bare: true})
	lab.Kubectl(t, l, "apply", "--warnings-as-errors", "-f", l.Path("artifacts/install.yaml"))
	pods := l.RunPods(t)
	pods.RequireRolledOut(t)
	n := l.NewNamespace(t)
	startAdditions(t, n)

	const icecreams, updates = 20, 2
	specs, updated := createAll(t, n, icecreams), make(chan struct{})
	var users sync.WaitGroup
	t.Cleanup(users.Wait)
	users.Go(func() {
		for edit := 1; ; edit++ {
			editAll(t, n, specs, edit)
			select {
			case <-updated:
				return
			case <-t.Context().Done():
				return
			case <-time.After(time.Second):
			}
		}
	})
	for range updates {
		// kubectl refuses that within a second of the last one.
		lab.Eventually(t, "the rollout is restarted", func() error {
			_, err := l.TryKubectl(t.Context(), "", "-n", lab.SystemNamespace, "rollout", "restart", "deployment/k8s-controller")
			return err
		})
		pods.RequireRolledOut(t)
	}
	close(updated)
	users.Wait()
	n.Eventually(t, "all are Ready", func(ctx context.Context) error { return allReady(ctx, n, icecreams) })
	if err := areAsSpecified(t, n, specs); err != nil {
		t.Error(err)
	}
	for i, term := range termsOf(t, l.Requests(t), lease) {
		t.Logf("term %d: %s, for %s", i+1, term.Agent, term.Last.Sub(term.Began).Round(time.Millisecond))
	}
	requireCreatedOnce(t, n)

	pods.RequireMetrics(t, fmt.Sprintf(`",ready="True",reason="Available"} %d`, icecreams))
	requireRoles(t, n)

	if err := l.LearnPrivileges(); err != nil {
		t.Error(err)
	}
	lab.Kubectl(t, l, "-n", lab.SystemNamespace, "delete", "deployment/k8s-controller")
	n.Eventually(t, "no controller runs", func(context.Context) error {
		if left := len(pods.Controllers()); left > 0 {
			return fmt.Errorf("%d run", left)
		}
		return nil
	})
	if err := allReady(t.Context(), n, icecreams); err != nil {
		t.Errorf("without a controller: %v", err)
	}
}

// startAdditions installs a policy that adds to the Deployments of the namespace what gives no
// power, and waits until it does.
func startAdditions(t *testing.T, n *lab.Namespace) {
	t.Helper()
	manifest, err := os.ReadFile("testdata/additions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	n.Apply(t, strings.ReplaceAll(string(manifest), "NAMESPACE", n.Name))
	n.Eventually(t, "a policy adds something to Deployments", func(ctx context.Context) error {
		got, err := n.TryKubectl(ctx, "", "create", "deployment", "probe", "--image=registry.example/probe:1", "--dry-run=server", "-o=jsonpath={..costcenter}")
		if err == nil && got == "" {
			err = errors.New("it does not")
		}
		return err
	})
}

// requireRoles requires that the usual roles in a namespace are good for Icecreams,
// too, and that nobody but the controller writes a status.
func requireRoles(t *testing.T, n *lab.Namespace) {
	t.Helper()
	reads := []string{"get", "list", "watch"}
	writes := []string{"create", "update", "patch", "delete", "patch scale"}
	reports := []string{"update status", "patch status"}
	for _, tt := range []struct {
		role     string
		may, not []string
	}{
		{"view", reads, slices.Concat(writes, reports)},
		{"edit", slices.Concat(reads, writes), reports},
		{"admin", slices.Concat(reads, writes), reports},
	} {
		n.Kubectl(t, "create", "rolebinding", tt.role, "--clusterrole="+tt.role, "--user="+tt.role)
		for answer, permissions := range map[string][]string{"yes": tt.may, "no": tt.not} {
			for _, permission := range permissions {
				verb, subresource, _ := strings.Cut(permission, " ")
				// A no is an error, too.
				got, err := n.TryKubectl(t.Context(), "", "auth", "can-i", verb, "icecreams.controller.nicoleh.io", "--subresource="+subresource, "--as="+tt.role)
				if strings.TrimSpace(got) != answer {
					t.Errorf("may somebody with the role %s %s? %s (%v)", tt.role, permission, got, err)
				}
			}
		}
	}
}
