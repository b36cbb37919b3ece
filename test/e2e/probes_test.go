package e2e

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// To start it anew helps neither against an API server that is away nor against one
// that does not answer. And to be asked costs the API server nothing.
func TestProbesWithoutAPIServer(t *testing.T) {
	t.Parallel()
	l := NewLab(t, lab.Options{})
	n := l.NewNamespace(t)
	c := l.StartController(t, "-bind-address=127.0.0.1:0")
	n.Controller = c
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "vanilla")
	eventuallyIdle(t, n, c)

	mark := time.Now()
	for range 20 {
		requireProbes(t, c, http.StatusOK, http.StatusOK)
	}
	if made := l.Requests(t).By(c.User).Since(mark).Where(isNotWatch); len(made) > 0 {
		t.Errorf("80 probes cost the API server %s", made)
	}

	steadily := func(what string) {
		n.Steadily(t, what, 15*time.Second, func(context.Context) error {
			requireProbes(t, c, http.StatusOK, http.StatusOK)
			return nil
		})
	}
	if err := l.PauseComponent(cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	steadily("the API server does not answer, and the probes do")
	if err := l.ResumeComponent(cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	if err := l.KillComponent(cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	steadily("the API server is away, and all is well with the probes")
	if err := l.StartComponent(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
}

// A worker that does not come back from one object is a reason to start anew.
func TestProbesWithStuckWorker(t *testing.T) {
	t.Parallel()
	patient, impatient := NewQuietNamespace(t), NewQuietNamespace(t)
	p := patient.StartController(t, "-bind-address=127.0.0.1:0")
	i := impatient.StartController(t, "-bind-address=127.0.0.1:0", "-stuck-after=3s")
	release := holdDeployments(t, patient, impatient)
	for _, n := range []*lab.Namespace{patient, impatient} {
		n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	}

	impatient.Eventually(t, "/livez fails", func(context.Context) error {
		if code, body := i.Get(t, "/livez", ""); code != http.StatusInternalServerError || !strings.Contains(body, "[-]icecream failed") {
			return fmt.Errorf("it answers %d: %s", code, body)
		}
		return nil
	})
	requireProbes(t, i, http.StatusInternalServerError, http.StatusOK)
	requireProbes(t, p, http.StatusOK, http.StatusOK)

	release()
	for _, n := range []*lab.Namespace{patient, impatient} {
		n.EventuallyReady(t, "vanilla")
	}
	requireProbes(t, i, http.StatusOK, http.StatusOK)
}

// holdDeployments has the API server wait, before it creates a Deployment in those
// namespaces, until release is called.
func holdDeployments(t *testing.T, namespaces ...*lab.Namespace) (release context.CancelFunc) {
	t.Helper()
	held, release := context.WithCancel(t.Context())
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-held.Done():
		case <-r.Context().Done():
		}
		w.WriteHeader(http.StatusServiceUnavailable) // which the policy ignores
	}))
	t.Cleanup(webhook.Close)
	t.Cleanup(release)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw})
	var names []string
	for _, n := range namespaces {
		names = append(names, n.Name)
	}
	n := namespaces[0]
	n.Apply(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: hold.icecream.example
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  timeoutSeconds: 30
  clientConfig: {url: %[2]q, caBundle: %[3]s}
  namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [%[4]s]}]}
  rules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]
`, n.Name, webhook.URL, base64.StdEncoding.EncodeToString(authority), strings.Join(names, ", ")))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lab.Patience)
		defer cancel()
		if _, err := n.TryKubectl(ctx, "", "delete", "validatingwebhookconfiguration", n.Name); err != nil {
			t.Error(err)
		}
	})
	return release
}
