package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
			kubectl(t, l, "apply", "--warnings-as-errors", "-f", l.Path("artifacts/install.yaml"))
			// The same with kustomize. While Kubernetes is still writing the status of
			// what is new, the two states that are compared may differ in that.
			eventually(t, "kustomize makes no difference", func() error {
				difference, err := l.TryKubectl(t.Context(), "", "diff", "-k", l.Path("artifacts"))
				if err != nil {
					return fmt.Errorf("%w\n%.2000s", err, difference)
				}
				return nil
			})
		},
		update: func(t *testing.T, l *lab.Lab) {
			// kubectl refuses that within a second of the last one.
			eventually(t, "the rollout is restarted", func() error {
				_, err := l.TryKubectl(t.Context(), "", "-n", lab.SystemNamespace, "rollout", "restart", "deployment/k8s-controller")
				return err
			})
		},
		uninstall: func(t *testing.T, l *lab.Lab) {
			kubectl(t, l, "-n", lab.SystemNamespace, "delete", "deployment/k8s-controller")
		},
	}, {
		name: "helm",
		install: func(t *testing.T, l *lab.Lab) {
			// With every controller.
			install := []string{"install", "k8s-controller", "charts/k8s-controller", "--namespace", lab.SystemNamespace, "--create-namespace"}
			for _, name := range l.OptionalControllers(t) {
				install = append(install, "--set", "controllers."+name+".enabled=true")
			}
			l.Helm(t, install...)
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
			pods := l.RunPods(t, lab.SystemNamespace, "app.kubernetes.io/name=k8s-controller")
			requireRolledOut(t, l)
			n := l.NewNamespace(t)
			startAdditions(t, n)

			const icecreams, edits, updates = 20, 3, 2
			wait := startUsers(t, n, icecreams, edits, seed)
			for range updates {
				tt.update(t, l)
				requireRolledOut(t, l)
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

			requireMetrics(t, n, pods)
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

func requireRolledOut(t *testing.T, l *lab.Lab) {
	t.Helper()
	kubectl(t, l, "-n", lab.SystemNamespace, "rollout", "status", "--timeout", lab.Timeout.String(), "deployment/k8s-controller")
}

// requireMetrics requires that two replicas run, that they are ready and one of them
// leads, and that the metrics are for those who may get them, and for nobody else.
// Those that the last update has replaced may be still about to end.
func requireMetrics(t *testing.T, n *lab.Namespace, pods *lab.Kubelet) {
	t.Helper()
	for _, account := range []string{"prometheus", "curious"} {
		kubectl(t, n.Lab, "-n", "default", "create", "serviceaccount", account)
	}
	kubectl(t, n.Lab, "create", "clusterrolebinding", "prometheus", "--clusterrole=k8s-controller-metrics-reader", "--serviceaccount=default:prometheus")
	token := func(account string) string {
		return strings.TrimSpace(kubectl(t, n.Lab, "-n", "default", "create", "token", account))
	}
	requests := []struct {
		path, who, token string
		code             int
		text             string // that is in the answer
	}{
		{"/readyz?verbose", "a kubelet", "", http.StatusOK, ""},
		{"/metrics", "nobody", "", http.StatusUnauthorized, ""},
		{"/metrics", "somebody who made a token up", "sesame", http.StatusUnauthorized, ""},
		{"/metrics", "somebody without permission", token("curious"), http.StatusForbidden, ""},
		{"/metrics", "Prometheus", token("prometheus"), http.StatusOK, "leader_election_master_status"},
	}
	n.Eventually(t, "two replicas run and one of them leads, as those may know who may", func(context.Context) error {
		replicas, leaders := pods.Controllers(), 0
		for _, c := range replicas {
			for _, r := range requests {
				code, body, err := c.TryGet(t, r.path, r.token)
				if err != nil {
					return err
				}
				if code != r.code || !strings.Contains(body, r.text) || code != http.StatusOK && strings.Contains(body, "controller_") {
					return fmt.Errorf("%s gets %s with %d: %s", r.who, r.path, code, body)
				}
				if strings.Contains(body, `leader_election_master_status{name="k8s-controller"} 1`) {
					leaders++
					if !strings.Contains(body, `",ready="True",reason="Available"} 20`) {
						return fmt.Errorf("the leader does not count 20 Icecreams: %s", body)
					}
				}
			}
		}
		if len(replicas) != 2 || leaders != 1 {
			return fmt.Errorf("%d of %d replicas say that they lead", leaders, len(replicas))
		}
		return nil
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
