package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// denyOperation returns a webhook's answer that denies the controller's requests for one
// operation, such as Create, with the errors that newError returns. It allows everything
// else.
func denyOperation(n *lab.Namespace, operation admissionv1.Operation, newError func() error) lab.Answer {
	return func(request *admissionv1.AdmissionRequest) error {
		if request.UserInfo.Username != n.Controller.User || request.Operation != operation {
			return nil
		}
		return newError()
	}
}

// distinctErrors returns a function that returns a different error each time.
func distinctErrors() func() error {
	var count atomic.Int64
	return func() error { return fmt.Errorf("request %d is one too many", count.Add(1)) }
}

// eventuallyRefused waits until an Icecream says, in these words, that its Deployment is
// refused.
func eventuallyRefused(t *testing.T, n *lab.Namespace, name, words string) {
	t.Helper()
	n.EventuallyIcecream(t, name, "says that its Deployment is refused", func(ice *v1alpha1.Icecream) error {
		ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Reason != v1alpha1.ReasonDeploymentRefused || !strings.Contains(ready.Message, words) {
			return fmt.Errorf("its conditions are %+v", ice.Status.Conditions)
		}
		return nil
	})
}

// provocations are specs of the Icecream "vanilla" before and after an edit, such that
// the edit makes the controller request that operation on a Deployment.
var provocations = map[admissionv1.Operation]struct{ before, after []string }{
	admissionv1.Create: {nil, []string{"replicas: 2"}},
	admissionv1.Update: {[]string{"replicas: 2", "image: registry.example/vanilla:1"}, []string{"replicas: 2", "image: registry.example/vanilla:2"}},
	admissionv1.Delete: {[]string{"deploymentName: cone"}, []string{"deploymentName: cup"}},
}

// provokeRefusals starts a webhook that refuses an operation with errors from newError,
// makes the controller request that operation, and returns once the Icecream "vanilla"
// reports the refusal in these words.
func provokeRefusals(t *testing.T, n *lab.Namespace, operation admissionv1.Operation, newError func() error, words string) *lab.Webhook {
	t.Helper()
	provocation := provocations[operation]
	if provocation.before != nil {
		n.Apply(t, icecreamYAML("vanilla", provocation.before...))
		n.EventuallyReady(t, "vanilla")
	}
	webhook := n.StartWebhook(t, "deployments", denyOperation(n, operation, newError))
	n.Apply(t, icecreamYAML("vanilla", provocation.after...))
	eventuallyRefused(t, n, "vanilla", words)
	return webhook
}

// Refusals are reported only once, even if each one has a different message.
func TestRefusalsInEverNewWords(t *testing.T) {
	t.Parallel()
	const while, most, fewest = 20 * time.Second, 8, 2
	for name, test := range map[string]struct {
		operation admissionv1.Operation
		newError  func() error
		words     string
	}{
		"of a creation":                         {admissionv1.Create, distinctErrors(), "is one too many"},
		"of an update":                          {admissionv1.Update, distinctErrors(), "is one too many"},
		"of a deletion":                         {admissionv1.Delete, distinctErrors(), "is one too many"},
		"of a creation, by a broken connection": {admissionv1.Create, func() error { return lab.ErrDropConnection }, "failed calling webhook"},
		"of an update, by a broken connection":  {admissionv1.Update, func() error { return lab.ErrDropConnection }, "failed calling webhook"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewQuietNamespace(t)
			n.StartController(t)
			webhook := provokeRefusals(t, n, test.operation, test.newError, test.words)

			began := time.Now()
			n.Steadily(t, "it says that its Deployment is refused", while, func(context.Context) error {
				ready := meta.FindStatusCondition(n.Icecream(t, "vanilla").Status.Conditions, v1alpha1.ConditionReady)
				if ready.Status == metav1.ConditionTrue || ready.Reason != v1alpha1.ReasonDeploymentRefused {
					return fmt.Errorf("condition Ready is %+v", ready)
				}
				return nil
			})
			if writes := deploymentWrites(t, n, began); len(writes) < fewest || len(writes) > most {
				t.Errorf("in %s the controller made %s, want %d to %d", while, writes, fewest, most)
			}
			if writes := statusWrites(t, n, "vanilla", began); len(writes) > most {
				t.Errorf("in %s the controller made %s, want at most %d", while, writes, most)
			}
			if writes := requestsOf(t, n).Since(began).Resource("events").Writes(); len(writes) > most {
				t.Errorf("in %s the controller made %s, want at most %d", while, writes, most)
			}
			requireOneWarning(t, n, "vanilla", v1alpha1.ReasonDeploymentRefused, test.words)

			webhook.Stop(t)
			requireRecovered(t, n, "vanilla", v1alpha1.ReasonDeploymentRefused)
		})
	}
}

// A single broken webhook affects all Icecreams at once.
func TestManyRefusalsAtOnce(t *testing.T) {
	t.Parallel()
	const icecreams, while, perSecond = 40, 20 * time.Second, 3
	n := NewQuietNamespace(t)
	n.StartController(t)
	webhook := n.StartWebhook(t, "deployments", denyOperation(n, admissionv1.Create, distinctErrors()))

	began := time.Now()
	for i := range icecreams {
		n.Create(t, icecreamName(i), v1alpha1.IcecreamSpec{})
	}
	for i := range icecreams {
		eventuallyRefused(t, n, icecreamName(i), "is one too many")
	}
	time.Sleep(time.Until(began.Add(while)))
	most := icecreams + perSecond*int(time.Since(began).Seconds())
	made := requestsOf(t, n).Since(began)
	for what, writes := range map[string]lab.Requests{
		"Deployments": made.Resource("deployments").Writes(),
		"statuses":    made.Resource("icecreams/status").Writes(),
		"events":      made.Resource("events").Writes(),
	} {
		if len(writes) > most {
			t.Errorf("%d Icecreams were refused for %s, and the controller wrote their %s with %s, want at most %d", icecreams, time.Since(began), what, writes, most)
		}
	}

	webhook.Stop(t)
	n.Eventually(t, "all are Ready", func(ctx context.Context) error { return allReady(ctx, n, icecreams) })
	for i := range icecreams {
		requireOneWarning(t, n, icecreamName(i), v1alpha1.ReasonDeploymentRefused, "is one too many")
	}
}

// A webhook chooses the status code of its denial. Some of these codes are also what the
// API server returns when the client's cache is stale.
func TestDenialsThatLookLikeAStaleCache(t *testing.T) {
	t.Parallel()
	status := func(code int32, reason metav1.StatusReason) *apierrors.StatusError {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: "team parlor has no budget"}}
	}
	for name, denial := range map[string]*apierrors.StatusError{
		"404, not found":      status(http.StatusNotFound, metav1.StatusReasonNotFound),
		"404":                 status(http.StatusNotFound, ""),
		"409, conflict":       status(http.StatusConflict, metav1.StatusReasonConflict),
		"409, already exists": status(http.StatusConflict, metav1.StatusReasonAlreadyExists),
		"409":                 status(http.StatusConflict, ""),
	} {
		for operation := range provocations {
			t.Run(fmt.Sprintf("%s to %s", name, operation), func(t *testing.T) {
				t.Parallel()
				n := NewNamespace(t)
				webhook := provokeRefusals(t, n, operation, func() error { return denial }, "team parlor has no budget")
				requireOneWarning(t, n, "vanilla", v1alpha1.ReasonDeploymentRefused, "team parlor has no budget")
				webhook.Stop(t)
				requireRecovered(t, n, "vanilla", v1alpha1.ReasonDeploymentRefused)
			})
		}
	}
}

// An error from an API server that is overloaded or cannot be reached is not a refusal.
func TestNoAnswerIsNoRefusal(t *testing.T) {
	t.Parallel()
	busyServer := func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		out.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(out, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "TooManyRequests", "message": "come back later", "code": 429}`)
	}
	for name, answer := range map[string]http.HandlerFunc{"too many requests": busyServer, "a broken connection": lab.DropConnection} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const while, most, fewest = 15 * time.Second, 2, 2
			n := NewQuietNamespace(t)
			var isDown atomic.Bool
			var rejected atomic.Int64
			isDown.Store(true)
			n.StartControllerBehind(t, func(in *http.Request) http.HandlerFunc {
				if !isDown.Load() || in.Method != http.MethodPost || !strings.HasSuffix(in.URL.Path, "/deployments") {
					return nil
				}
				rejected.Add(1)
				return answer
			})

			n.Apply(t, icecreamYAML("vanilla"))
			n.Eventually(t, "the controller tries to create a Deployment", func(context.Context) error {
				if rejected.Load() == 0 {
					return errors.New("it has not tried yet")
				}
				return nil
			})
			n.Steadily(t, "the status reports no refusal", while, func(context.Context) error {
				ready := meta.FindStatusCondition(n.Icecream(t, "vanilla").Status.Conditions, v1alpha1.ConditionReady)
				if ready != nil && ready.Reason == v1alpha1.ReasonDeploymentRefused {
					return errors.New(ready.Message)
				}
				return nil
			})
			if got := rejected.Load(); got < fewest {
				t.Errorf("the controller tried %d times to create a Deployment, want at least %d", got, fewest)
			}
			if writes := statusWrites(t, n, "vanilla", time.Time{}); len(writes) > most {
				t.Errorf("there was nothing to report, but the controller made %s", writes)
			}
			isDown.Store(false)
			n.EventuallyReady(t, "vanilla")
			eventuallyEvent(t, n, "vanilla", v1alpha1.ReasonSynced, "")
			requireNoWarnings(t, n, "vanilla")
		})
	}
}
