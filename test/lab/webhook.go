package lab

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/utils/ptr"
)

// ErrBreakOff has a Webhook break the connection off instead of answering.
var ErrBreakOff = errors.New("the connection is to be broken off")

// Answer says what a Webhook makes of a request: nil allows it, ErrBreakOff leaves it
// without an answer, an apierrors.APIStatus denies it with that status, and any other
// error denies it as forbidden, with these words. It may be called concurrently.
type Answer func(request *admissionv1.AdmissionRequest) error

// A Webhook is a validating admission webhook for one resource of one namespace,
// which this process serves. The API server asks it about every creation, update and
// deletion, and takes a broken connection for a refusal.
type Webhook struct {
	name      string
	namespace *Namespace
	resource  string
	answer    Answer
	denied    atomic.Int64
}

// canary is the name of the object whose creation every Webhook and Policy acts on,
// whatever it is for: this shows when the API server knows of it.
const canary = "canary"

// StartWebhook has the API server ask a webhook about a resource, which is
// "deployments" or "replicasets", and returns once it does so. The webhook ends with
// the test, or with Stop.
func (n *Namespace) StartWebhook(t testing.TB, resource string, answer Answer) *Webhook {
	t.Helper()
	w := &Webhook{name: n.Name + "-" + resource, namespace: n, resource: resource, answer: answer}
	server := httptest.NewUnstartedServer(w)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // broken connections are what it is for
	server.StartTLS()
	t.Cleanup(server.Close)

	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	_, err := n.webhooks().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: w.name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "counterpart.example.com",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: ca},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": n.Name}},
			FailurePolicy:           ptr.To(admissionregistrationv1.Fail),
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{resource}},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("registering a webhook: %v", err)
	}
	t.Cleanup(func() {
		if err := w.remove(); err != nil {
			t.Errorf("removing a webhook: %v", err)
		}
	})
	n.Eventually(t, "the webhook is asked", func(ctx context.Context) error {
		if w.isAsked(ctx) {
			return nil
		}
		return errors.New("the API server does not know of it yet")
	})
	return w
}

// Stop removes the webhook, and returns when the API server no longer asks it.
func (w *Webhook) Stop(t testing.TB) {
	t.Helper()
	if err := w.remove(); err != nil {
		t.Fatalf("removing a webhook: %v", err)
	}
	w.namespace.Eventually(t, "the webhook is no longer asked", func(ctx context.Context) error {
		if w.isAsked(ctx) {
			return errors.New("the API server still knows of it")
		}
		return nil
	})
}

// Denied is how many requests the webhook has not allowed.
func (w *Webhook) Denied() int { return int(w.denied.Load()) }

func (w *Webhook) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := w.namespace.webhooks().Delete(ctx, w.name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// isAsked reports whether the API server asks the webhook.
func (w *Webhook) isAsked(ctx context.Context) bool {
	_, err := w.namespace.TryKubectl(ctx, manifestOf(w.resource, canary), "create", "--dry-run=server", "-f", "-")
	return err != nil && strings.Contains(err.Error(), "counterpart.example.com")
}

// ServeHTTP answers the API server.
func (w *Webhook) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(in.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(out, fmt.Sprintf("not a review: %v", err), http.StatusBadRequest)
		return
	}
	err := w.judge(review.Request)
	if errors.Is(err, ErrBreakOff) {
		breakOff(out)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: err == nil, Result: resultOf(err)}
	review.Request = nil
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(review) // the API server may have lost its patience
}

func (w *Webhook) judge(request *admissionv1.AdmissionRequest) error {
	if request.Name == canary {
		return errors.New("the webhook is asked")
	}
	err := w.answer(request)
	if err != nil {
		w.denied.Add(1)
	}
	return err
}

func resultOf(err error) *metav1.Status {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return nil
	case errors.As(err, &status):
		result := status.Status()
		return &result
	default:
		return &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: err.Error()}
	}
}

// breakOff ends a connection as a process that dies in the middle of a request would:
// the other side is told that it was reset.
func breakOff(out http.ResponseWriter) {
	hijacker, ok := out.(http.Hijacker)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	connection, _, err := hijacker.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if secured, ok := connection.(interface{ NetConn() net.Conn }); ok {
		connection = secured.NetConn()
	}
	if plain, ok := connection.(*net.TCPConn); ok {
		_ = plain.SetLinger(0)
	}
	_ = connection.Close()
}

func (n *Namespace) webhooks() admissionclient.ValidatingWebhookConfigurationInterface {
	return n.Lab.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
}

// manifestOf is a Deployment or ReplicaSet of that name, with nothing special about it.
func manifestOf(resource, name string) string {
	kinds := map[string]string{"deployments": "Deployment", "replicasets": "ReplicaSet"}
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: %[1]s, metadata: {name: %[2]s, labels: {app: %[2]s}}, spec: {
		selector: {matchLabels: {app: %[2]s}}, template: {metadata: {labels: {app: %[2]s}}, spec: {
			containers: [{name: icecream, image: "registry.example/%[2]s:1"}]}}}}`, kinds[resource], name)
}
