package e2e

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

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// A webhook chooses the status code of its denial. Some of these codes are also what the API
// server returns when the client's cache is stale.
func TestWebhookThatRefuses(t *testing.T) {
	t.Parallel()
	status := func(code int32, reason metav1.StatusReason) error {
		details := &metav1.StatusDetails{Group: "apps", Kind: "deployments", Name: "vanilla"}
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: "no budget", Details: details}}
	}
	type row struct {
		operation     admissionv1.Operation
		err           error
		words         string
		before, after []string // specs
	}
	rows := map[string]row{
		"a creation":                       {admissionv1.Create, errors.New("no budget"), "no budget", nil, []string{"replicas: 2"}},
		"a creation as already existing":   {admissionv1.Create, status(http.StatusConflict, metav1.StatusReasonAlreadyExists), "no budget", nil, []string{"replicas: 2"}},
		"a creation by ending connections": {admissionv1.Create, errNoResponse, "failed calling webhook", nil, []string{"replicas: 2"}},
	}
	for code, reason := range map[int32]metav1.StatusReason{
		http.StatusUnauthorized:        metav1.StatusReasonUnauthorized,
		http.StatusNotFound:            metav1.StatusReasonNotFound,
		http.StatusConflict:            metav1.StatusReasonConflict,
		http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
		http.StatusInternalServerError: "",
		http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
	} {
		rows[fmt.Sprint("an update with ", code)] = row{admissionv1.Update, status(code, reason), "no budget", []string{"replicas: 2"}, []string{"replicas: 1"}}
	}
	for name, test := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)
			if test.before != nil {
				n.Apply(t, icecreamYAML("vanilla", test.before...))
				n.EventuallyReady(t, "vanilla")
			}
			stop := startWebhook(t, n, test.operation, test.err)
			n.Apply(t, icecreamYAML("vanilla", test.after...))
			eventuallyRefused(t, n, "vanilla", test.words)
			requireOneWarning(t, n, "vanilla", v1alpha1.ReasonDeploymentRefused, test.words)
			stop()
			n.EventuallyReady(t, "vanilla")
		})
	}
}

// errNoResponse has a webhook close the connection instead of sending a response.
var errNoResponse = errors.New("close the connection without a response")

// startWebhook registers a webhook that denies an operation of the controller on Deployments of
// the namespace, with the status of that error, and waits until the API server calls it. The
// function that it returns deletes the webhook, and waits until it is no longer called.
func startWebhook(t *testing.T, n *lab.Namespace, operation admissionv1.Operation, denial error) (stop func()) {
	t.Helper()
	const canary = "canary" // of which the creation is always denied
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(in.Body).Decode(&review); err != nil {
			t.Error(err)
			return
		}
		response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		isDenied := review.Request.UserInfo.Username == n.Controller.User && review.Request.Operation == operation
		if review.Request.Name == canary || isDenied {
			if isDenied && errors.Is(denial, errNoResponse) {
				panic(http.ErrAbortHandler)
			}
			response.Allowed, response.Result = false, &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: denial.Error()}
			var status apierrors.APIStatus
			if errors.As(denial, &status) {
				response.Result = ptr.To(status.Status())
			}
		}
		review.Request, review.Response = nil, response
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(review) // the API server may have given up waiting
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that are closed on purpose
	server.StartTLS()
	t.Cleanup(server.Close)
	webhooks := n.Lab.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := webhooks.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "webhook.example.com",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": n.Name}},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	requireCalled := func(want bool) {
		t.Helper()
		n.Eventually(t, fmt.Sprintf("the API server calls the webhook: %t", want), func(ctx context.Context) error {
			_, err := n.TryKubectl(ctx, "", "create", "deployment", canary, "--image=registry.example/canary:1", "--dry-run=server")
			if isCalled := err != nil && strings.Contains(err.Error(), "webhook.example.com"); isCalled != want {
				return fmt.Errorf("it does not, or still does: %w", err)
			}
			return nil
		})
	}
	requireCalled(true)
	return func() {
		t.Helper()
		if err := webhooks.Delete(t.Context(), n.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		requireCalled(false)
	}
}

// eventuallyRefused waits until an Icecream says, in these words, that its Deployment is
// refused.
func eventuallyRefused(t *testing.T, n *lab.Namespace, name string, words ...string) {
	t.Helper()
	n.EventuallyIcecream(t, name, "says that its Deployment is refused", func(ice *v1alpha1.Icecream) error {
		ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Reason != v1alpha1.ReasonDeploymentRefused || !lab.ContainsAll(ready.Message, words...) {
			return fmt.Errorf("its conditions are %+v", ice.Status.Conditions)
		}
		return nil
	})
}

// eventuallyRunsImage waits until a Deployment has that image, and the Icecream is Ready
// with it.
func eventuallyRunsImage(t *testing.T, n *lab.Namespace, name, deployment, image string) {
	t.Helper()
	n.Eventually(t, fmt.Sprintf("Deployment %q has image %q", deployment, image), func(ctx context.Context) error {
		got, err := n.TryKubectl(ctx, "", "get", "deployment", deployment, `-o=jsonpath={.spec.template.spec.containers[?(@.name=="icecream")].image}`)
		if err == nil && strings.TrimSpace(got) != image {
			err = fmt.Errorf("its image is %q", got)
		}
		return err
	})
	n.EventuallyReady(t, name)
}
