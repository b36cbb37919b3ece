package lab

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/utils/ptr"
)

// ErrDropConnection makes a Webhook close the connection instead of sending a response.
var ErrDropConnection = errors.New("close the connection without a response")

// Answer decides about a request to a Webhook. A nil error allows the request.
// ErrDropConnection closes the connection without a response. An [apierrors.APIStatus]
// denies the request with that status. Any other error denies it as forbidden, with the
// error's message. An Answer must be safe for concurrent use.
type Answer func(request *admissionv1.AdmissionRequest) error

// A Webhook is a validating admission webhook for the Deployments of one namespace, served by
// this process. The API server calls it for every creation, update and deletion. If the
// call fails, the API server rejects the request.
type Webhook struct {
	name      string
	namespace *Namespace
	answer    Answer
}

// canary is the name of an object that tests create in dry-run mode to find out whether a
// Webhook or Policy is in force. Every Webhook denies its creation, and every Policy changes
// it.
const canary = "canary"

// StartWebhook registers a webhook and waits until the API server calls it. The webhook is
// deleted at the end of the test, or by Stop.
func (n *Namespace) StartWebhook(t testing.TB, answer Answer) *Webhook {
	t.Helper()
	w := &Webhook{name: n.Name, namespace: n, answer: answer}
	server := httptest.NewUnstartedServer(w)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it would log the connections that the test closes on purpose
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
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("registering a webhook: %v", err)
	}
	t.Cleanup(func() {
		if err := w.delete(); err != nil {
			t.Errorf("deleting a webhook: %v", err)
		}
	})
	n.Eventually(t, "the API server calls the webhook", func(ctx context.Context) error {
		if w.isCalled(ctx) {
			return nil
		}
		return errors.New("the API server does not call it yet")
	})
	return w
}

// Stop deletes the webhook and waits until the API server no longer calls it.
func (w *Webhook) Stop(t testing.TB) {
	t.Helper()
	if err := w.delete(); err != nil {
		t.Fatalf("deleting a webhook: %v", err)
	}
	w.namespace.Eventually(t, "the API server no longer calls the webhook", func(ctx context.Context) error {
		if w.isCalled(ctx) {
			return errors.New("the API server still calls it")
		}
		return nil
	})
}

func (w *Webhook) delete() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := w.namespace.webhooks().Delete(ctx, w.name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// isCalled reports whether the API server calls the webhook.
func (w *Webhook) isCalled(ctx context.Context) bool {
	_, err := w.namespace.TryKubectl(ctx, canaryManifest, "create", "--dry-run=server", "-f", "-")
	return err != nil && strings.Contains(err.Error(), "counterpart.example.com")
}

// ServeHTTP answers an AdmissionReview of the API server.
func (w *Webhook) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(in.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(out, fmt.Sprintf("not an AdmissionReview: %v", err), http.StatusBadRequest)
		return
	}
	err := w.decide(review.Request)
	if errors.Is(err, ErrDropConnection) {
		panic(http.ErrAbortHandler)
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: err == nil, Result: resultOf(err)}
	review.Request = nil
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(review) // the API server may have given up waiting
}

// decide denies the canary, and calls answer for any other object.
func (w *Webhook) decide(request *admissionv1.AdmissionRequest) error {
	if request.Name == canary {
		return errors.New("the API server calls the webhook")
	}
	return w.answer(request)
}

// resultOf returns the status with which a webhook denies a request, or nil if err is nil.
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

func (n *Namespace) webhooks() admissionclient.ValidatingWebhookConfigurationInterface {
	return n.Lab.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
}

// canaryManifest is the manifest of a Deployment.
const canaryManifest = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: canary, labels: {app: canary}}, spec: {
	selector: {matchLabels: {app: canary}}, template: {metadata: {labels: {app: canary}}, spec: {
		containers: [{name: icecream, image: "registry.example/canary:1"}]}}}}`
