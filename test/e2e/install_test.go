package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/test/lab"
)

// Installed with one command, updated while users are at work, and gone again without taking
// anything along. The policies that come with it refuse nothing that the cluster's own policies
// add to Deployments.
func TestInstall(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		install   func(t *testing.T, l *lab.Lab)
		update    func(t *testing.T, l *lab.Lab)
		uninstall func(t *testing.T, l *lab.Lab)
	}{{
		name: "kubectl",
		install: func(t *testing.T, l *lab.Lab) {
			lab.Kubectl(t, l, "apply", "--warnings-as-errors", "-f", l.Path("artifacts/install.yaml"))
			// The same with kustomize. While Kubernetes is still writing the status of
			// what is new, the two states that are compared may differ in that.
			lab.Eventually(t, "kustomize makes no difference", func() error {
				difference, err := l.TryKubectl(t.Context(), "", "diff", "-k", l.Path("artifacts"))
				if err != nil {
					return fmt.Errorf("%w\n%.2000s", err, difference)
				}
				return nil
			})
		},
		update: func(t *testing.T, l *lab.Lab) {
			// kubectl refuses that within a second of the last one.
			lab.Eventually(t, "the rollout is restarted", func() error {
				_, err := l.TryKubectl(t.Context(), "", "-n", lab.SystemNamespace, "rollout", "restart", "deployment/k8s-controller")
				return err
			})
		},
		uninstall: func(t *testing.T, l *lab.Lab) {
			lab.Kubectl(t, l, "-n", lab.SystemNamespace, "delete", "deployment/k8s-controller")
		},
	}, {
		name: "helm",
		install: func(t *testing.T, l *lab.Lab) {
			l.Helm(t, "install", "k8s-controller", "charts/k8s-controller", "--namespace", lab.SystemNamespace, "--create-namespace")
		},
		update: func(t *testing.T, l *lab.Lab) {
			l.Helm(t, "upgrade", "k8s-controller", "charts/k8s-controller", "--namespace", lab.SystemNamespace, "--reuse-values", "--set", "flags.v=2", "--set", "podAnnotations.updated=now")
		},
		uninstall: func(t *testing.T, l *lab.Lab) {
			l.Helm(t, "uninstall", "k8s-controller", "--namespace", lab.SystemNamespace)
		},
	}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			t.Logf("the seed is %d", seed)
			l := NewLab(t, lab.Options{Bare: true})
			tt.install(t, l)
			pods := l.RunPods(t)
			pods.RequireRolledOut(t)
			n := l.NewNamespace(t)
			startAdditions(t, n)

			const icecreams, edits, updates = 20, 3, 2
			wait := startUsers(t, n, icecreams, edits, seed)
			for range updates {
				tt.update(t, l)
				pods.RequireRolledOut(t)
			}
			final := wait()
			if t.Failed() {
				return
			}
			n.Eventually(t, "all are Ready", func(ctx context.Context) error { return allReady(ctx, n, icecreams) })
			requireAsSpecified(t, n, final)
			for i, term := range termsOf(t, l.Requests(t), lease) {
				t.Logf("term %d: %s, for %s", i+1, term.Agent, term.Last.Sub(term.Began).Round(time.Millisecond))
			}
			requireCreatedOnce(t, n)

			pods.RequireMetrics(t, fmt.Sprintf(`",ready="True",reason="Available"} %d`, icecreams))
			requireRoles(t, n)

			if err := l.LearnPrivileges(); err != nil {
				t.Error(err)
			}
			tt.uninstall(t, l)
			n.Eventually(t, "no controller runs", func(context.Context) error { return noneRuns(pods) })
			if err := allReady(t.Context(), n, icecreams); err != nil {
				t.Errorf("without a controller: %v", err)
			}
		})
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

// noneRuns returns nil if no controller of the Pods runs.
func noneRuns(pods *lab.Kubelet) error {
	if left := len(pods.Controllers()); left > 0 {
		return fmt.Errorf("%d run", left)
	}
	return nil
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
