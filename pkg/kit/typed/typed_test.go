package typed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/typed"
)

// recorder is an API server that keeps requests, as text, and answers all of them alike.
type recorder struct {
	status   int
	body     string
	requests []string
}

// RoundTrip implements http.RoundTripper.
func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	text := bytes.Buffer{}
	fmt.Fprintln(&text, request.Method, request.URL)
	if err := request.Header.Write(&text); err != nil {
		return nil, err
	}
	if request.Body != nil {
		if _, err := io.Copy(&text, request.Body); err != nil {
			return nil, err
		}
	}
	r.requests = append(r.requests, text.String())
	return &http.Response{
		StatusCode: r.status,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(r.body)),
		Request:    request,
	}, nil
}

// client is what all typed clients of client-go that can list have in common.
type client[T, L any] interface {
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (T, error)
}

// sendAll sends a request of each kind. What they return is not looked at.
func sendAll[T, L any](ctx context.Context, c client[T, L], obj T) {
	_, _ = c.Create(ctx, obj, metav1.CreateOptions{FieldManager: "test", DryRun: []string{metav1.DryRunAll}})
	_, _ = c.Update(ctx, obj, metav1.UpdateOptions{FieldManager: "test"})
	_ = c.Delete(ctx, "vanilla", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("uid"), PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
	_, _ = c.Get(ctx, "vanilla", metav1.GetOptions{ResourceVersion: "7"})
	_, _ = c.List(ctx, metav1.ListOptions{LabelSelector: "a=b", FieldSelector: "c=d", Limit: 5, Continue: "token"})
	if events, err := c.Watch(ctx, metav1.ListOptions{ResourceVersion: "7", AllowWatchBookmarks: true, SendInitialEvents: ptr.To(true), TimeoutSeconds: ptr.To[int64](60)}); err == nil {
		events.Stop()
	}
	_, _ = c.Patch(ctx, "vanilla", types.ApplyPatchType, []byte("{}"), metav1.PatchOptions{FieldManager: "test", Force: ptr.To(true)})
	_, _ = c.Patch(ctx, "vanilla", types.MergePatchType, []byte("{}"), metav1.PatchOptions{}, "status")
}

// Requests are those of client-go's clientset, to the last byte.
func TestRequests(t *testing.T) {
	for name, config := range map[string]rest.Config{
		"no content type": {},
		"protobuf":        {ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json"}},
		"JSON":            {ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}},
		"a user agent":    {UserAgent: "test/v1"},
		"a path":          {Host: "https://server/prefix", BearerToken: "token"},
	} {
		t.Run(name, func(t *testing.T) {
			if config.Host == "" {
				config.Host = "http://server"
			}
			config.QPS = -1
			want, got := &recorder{status: http.StatusOK, body: "{}"}, &recorder{status: http.StatusOK, body: "{}"}
			wantConfig, gotConfig := rest.CopyConfig(&config), rest.CopyConfig(&config)
			wantConfig.Transport, gotConfig.Transport = want, got
			kube, err := kubernetes.NewForConfig(wantConfig)
			if err != nil {
				t.Fatal(err)
			}
			set, err := typed.NewForConfig(gotConfig, batchv1.AddToScheme)
			if err != nil {
				t.Fatal(err)
			}

			ctx, meta := t.Context(), metav1.ObjectMeta{Namespace: "parlor", Name: "vanilla", Labels: map[string]string{"a": "b"}}
			sendAll(ctx, kube.AppsV1().Deployments("parlor"), &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)}})
			sendAll(ctx, kube.CoreV1().Nodes(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vanilla"}})
			sendAll(ctx, kube.CoreV1().Pods(metav1.NamespaceAll), &corev1.Pod{ObjectMeta: meta})
			sendAll(ctx, kube.CoordinationV1().Leases("parlor"), &coordinationv1.Lease{ObjectMeta: meta})
			sendAll(ctx, kube.EventsV1().Events("parlor"), &eventsv1.Event{ObjectMeta: meta, Note: "melts"})
			sendAll(ctx, kube.BatchV1().Jobs("parlor"), &batchv1.Job{ObjectMeta: meta})
			_, _ = kube.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "a"}}, metav1.CreateOptions{})
			_, _ = kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "a"}}, metav1.CreateOptions{})
			_, _ = kube.AppsV1().Deployments("parlor").UpdateStatus(ctx, &appsv1.Deployment{ObjectMeta: meta}, metav1.UpdateOptions{FieldManager: "test"})

			deployments := typed.Clients[appsv1.Deployment, appsv1.DeploymentList](set, appsv1.SchemeGroupVersion.WithResource("deployments"))
			sendAll(ctx, deployments("parlor"), &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)}})
			sendAll(ctx, typed.Clients[corev1.Node, corev1.NodeList](set, corev1.SchemeGroupVersion.WithResource("nodes"))(metav1.NamespaceNone), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vanilla"}})
			sendAll(ctx, typed.Clients[corev1.Pod, corev1.PodList](set, corev1.SchemeGroupVersion.WithResource("pods"))(metav1.NamespaceAll), &corev1.Pod{ObjectMeta: meta})
			sendAll(ctx, typed.Clients[coordinationv1.Lease, coordinationv1.LeaseList](set, coordinationv1.SchemeGroupVersion.WithResource("leases"))("parlor"), &coordinationv1.Lease{ObjectMeta: meta})
			sendAll(ctx, typed.Clients[eventsv1.Event, eventsv1.EventList](set, eventsv1.SchemeGroupVersion.WithResource("events"))("parlor"), &eventsv1.Event{ObjectMeta: meta, Note: "melts"})
			sendAll(ctx, typed.Clients[batchv1.Job, batchv1.JobList](set, batchv1.SchemeGroupVersion.WithResource("jobs"))("parlor"), &batchv1.Job{ObjectMeta: meta})
			_, _ = typed.ClientsWithoutList[authenticationv1.TokenReview](set, authenticationv1.SchemeGroupVersion.WithResource("tokenreviews"))(metav1.NamespaceNone).Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "a"}}, metav1.CreateOptions{})
			_, _ = typed.ClientsWithoutList[authorizationv1.SubjectAccessReview](set, authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews"))(metav1.NamespaceNone).Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "a"}}, metav1.CreateOptions{})
			_, _ = deployments("parlor").UpdateStatus(ctx, &appsv1.Deployment{ObjectMeta: meta}, metav1.UpdateOptions{FieldManager: "test"})

			if len(want.requests) != 51 { // 8 of each kind, 2 reviews, and a status
				t.Fatalf("client-go sent %d requests", len(want.requests))
			}
			if diff := cmp.Diff(want.requests, got.requests); diff != "" {
				t.Errorf("requests (-client-go +typed):\n%s", diff)
			}
		})
	}
}

// newClients returns clients of Pods, to whose requests the server responds in that way.
func newClients(t *testing.T, status int, body string) client[*corev1.Pod, *corev1.PodList] {
	t.Helper()
	set, err := typed.NewForConfig(&rest.Config{Host: "http://server", QPS: -1, Transport: &recorder{status: status, body: body}})
	if err != nil {
		t.Fatal(err)
	}
	return typed.Clients[corev1.Pod, corev1.PodList](set, corev1.SchemeGroupVersion.WithResource("pods"))("parlor")
}

func TestResponses(t *testing.T) {
	ctx, pod := t.Context(), `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "vanilla"}}`
	got, err := newClients(t, http.StatusOK, pod).Get(ctx, "vanilla", metav1.GetOptions{})
	if err != nil || got.Name != "vanilla" {
		t.Errorf("Get: %v, %v", got, err)
	}
	list, err := newClients(t, http.StatusOK, `{"apiVersion": "v1", "kind": "PodList", "items": [`+pod+`]}`).List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "vanilla" {
		t.Errorf("List: %v, %v", list, err)
	}
	events, err := newClients(t, http.StatusOK, `{"type": "ADDED", "object": `+pod+`}`).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	if event := <-events.ResultChan(); event.Type != watch.Added || event.Object.(*corev1.Pod).Name != "vanilla" {
		t.Errorf("Watch: %v", event)
	}
	_, err = newClients(t, http.StatusConflict, `{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "AlreadyExists", "code": 409}`).Create(ctx, &corev1.Pod{}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("Create: %v", err)
	}
}

// As in client-go, all groups of a set have one rate limit.
func TestRateLimit(t *testing.T) {
	set, err := typed.NewForConfig(&rest.Config{QPS: 3, Burst: 5})
	if err != nil {
		t.Fatal(err)
	}
	limiter := set.RESTClient(corev1.SchemeGroupVersion).GetRateLimiter()
	if limiter == nil || limiter.QPS() != 3 {
		t.Errorf("the rate limiter is %v", limiter)
	}
	if other := set.RESTClient(appsv1.SchemeGroupVersion).GetRateLimiter(); other != limiter {
		t.Errorf("apps has another rate limiter than core")
	}
	if set, err = typed.NewForConfig(&rest.Config{QPS: -1}); err != nil {
		t.Fatal(err)
	}
	if limiter := set.RESTClient(corev1.SchemeGroupVersion).GetRateLimiter(); limiter != nil {
		t.Errorf("there is a rate limiter without a limit: %v", limiter)
	}
}

func TestErrors(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		config rest.Config
		more   []func(*runtime.Scheme) error
	}{
		"QPS without Burst":        {config: rest.Config{QPS: 3}},
		"an address":               {config: rest.Config{Host: "http://server:port"}},
		"a certificate":            {config: rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: "missing.pem"}}},
		"a kind cannot be added":   {more: []func(*runtime.Scheme) error{func(*runtime.Scheme) error { return broken }}},
		"two ways to authenticate": {config: rest.Config{Username: "a", BearerToken: "b"}},
	} {
		if _, err := typed.NewForConfig(&test.config, test.more...); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A group that the set does not know is a mistake of the program, which shows when it starts.
func TestUnknownGroup(t *testing.T) {
	set, err := typed.NewForConfig(&rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if message := fmt.Sprint(recover()); !strings.Contains(message, "batch/v1") {
			t.Errorf("the panic says %q", message)
		}
	}()
	typed.Clients[batchv1.Job, batchv1.JobList](set, schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"})
	t.Error("no panic")
}
