package monitoring

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	l := lab.New(t, lab.Options{Binary: binary, Nodes: 1})
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
		"-bind-address=127.0.0.1:0", "-insecure-bind-address=127.0.0.1:0", "-icecream-stall-after=1s")
	n.Apply(t, icecreams)
	n.EventuallyReady(t, "good")
	n.EventuallyStalled(t, "bad", "ImagePullBackOff")

	text := scrape(t, n)

	t.Run("promlint", func(t *testing.T) { lint(t, text) })
	t.Run("queries", func(t *testing.T) { findAll(t, text+refusals(t, n)) })

	reader := token(t, l, "reader", rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}})
	stranger := token(t, l, "stranger")
	t.Run("access", func(t *testing.T) {
		for _, test := range []struct {
			name, token string
			want        int
		}{
			{"without a token", "", http.StatusUnauthorized},
			{"with a token of nobody", "nonsense", http.StatusUnauthorized},
			{"with a token that gives no right to it", stranger, http.StatusForbidden},
			{"with a token that does", reader, http.StatusOK},
		} {
			t.Run(test.name, func(t *testing.T) {
				code, body := n.Controller.Get(t, "/metrics", test.token)
				if code != test.want || (code == http.StatusOK) != strings.Contains(body, "icecream_objects{") {
					t.Errorf("status code %d, want %d, with %d bytes", code, test.want, len(body))
				}
			})
		}
	})
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
		for _, want := range []string{`icecream_objects{ready="True",`, `icecream_objects{ready="False",`, "leader_election_master_status{"} {
			if !strings.Contains(body, "\n"+want) && code == http.StatusOK {
				return fmt.Errorf("no %s", want)
			}
		}
		return expect(code, http.StatusOK)
	})
	return text
}

// refusals is what the API server counts of what a policy refuses.
func refusals(t *testing.T, n *lab.Namespace) (text string) {
	t.Helper()
	const name = "apiserver_validating_admission_policy_check_total"
	n.Eventually(t, "the API server counts a refusal", func(ctx context.Context) error {
		_, refused := n.TryKubectl(ctx, "", "create", "deployment", "theirs", "--image=registry.example/theirs", "--as=system:serviceaccount:"+lab.SystemNamespace+":"+lab.ServiceAccount)
		if refused == nil {
			return errors.New("it refuses nothing")
		}
		body, err := n.Lab.Kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(body)) {
			if strings.HasPrefix(line, "# TYPE "+name+" ") || strings.HasPrefix(line, name+"{") {
				text += line
			}
		}
		if !strings.Contains(text, `enforcement_action="deny"`) {
			return fmt.Errorf("it counts %s after %w", text, refused)
		}
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

// token makes a service account that may do what the rules say and no more, and
// returns a token of it.
func token(t *testing.T, l *lab.Lab, name string, rules ...rbacv1.PolicyRule) string {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "test-" + name}
	accounts := l.Kube.CoreV1().ServiceAccounts(lab.SystemNamespace)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if len(rules) > 0 {
		if _, err := l.Kube.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: lab.SystemNamespace, Name: meta.Name}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	issued, err := accounts.CreateToken(t.Context(), meta.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return issued.Status.Token
}

func expect(code, want int) error {
	if code != want {
		return fmt.Errorf("status code %d, want %d", code, want)
	}
	return nil
}
