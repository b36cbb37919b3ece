package lenient_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/rest"

	"nicoleh.io/k8s-controller/pkg/kit/lenient"
)

// response is a server that has one body for every request.
type response string

// RoundTrip implements http.RoundTripper.
func (r response) RoundTrip(request *http.Request) (*http.Response, error) {
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(string(r))), Request: request}, nil
}

// event is one of a watch, in JSON.
func event(sort, object string) string {
	return fmt.Sprintf("{\"type\":%q,\"object\":%s}\n", sort, object)
}

// A client reads a flawed object in whichever call returns it.
func TestCalls(t *testing.T) {
	flawed := deployment("flawed", flawedFields)
	client := func(body string) appsclient.DeploymentInterface {
		return lenientClient(t, &rest.Config{Transport: response(body)})
	}
	got, err := client(flawed).Get(t.Context(), "flawed", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	requireSalvaged(t, flawed, got)
	if got, err = client(flawed).UpdateStatus(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "flawed"}}, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	requireSalvaged(t, flawed, got)
	all, err := client(list(flawed)).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	requireSalvaged(t, list(flawed), all)
}

func lenientClient(t *testing.T, config *rest.Config) appsclient.DeploymentInterface {
	t.Helper()
	client, err := lenient.ClientsetFor(config, version, ofDeployments, appsclient.New)
	if err != nil {
		t.Fatal(err)
	}
	return client.Deployments("parlor")
}

// What else a watch or a streaming list delivers is as usual, next to flawed objects.
func TestWatch(t *testing.T) {
	good, flawed := deployment("good", goodFields), deployment("flawed", flawedFields)
	watcher, err := lenientClient(t, &rest.Config{Transport: response(event("ADDED", good) + event("ADDED", flawed) +
		event("BOOKMARK", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}`) +
		event("MODIFIED", good) + event("DELETED", flawed) +
		event("ERROR", `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Expired","code":410}`))}).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	for _, want := range []string{"ADDED good 0", "ADDED flawed 1", "BOOKMARK  0", "MODIFIED good 0", "DELETED flawed 1"} {
		e := <-watcher.ResultChan()
		d, ok := e.Object.(*appsv1.Deployment)
		if !ok {
			t.Fatalf("%s: %T", want, e.Object)
		}
		if got := fmt.Sprint(e.Type, " ", d.Name, " ", len(problems(d))); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if e := <-watcher.ResultChan(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("it ends with %v", e)
	}
}

// All versions of a clientset share one client, and its path names one version. Without an error, calls of another
// version would return empty objects and lists.
func TestOtherVersionsAreRefused(t *testing.T) {
	ofPolicies := runtime.NewScheme()
	if err := errors.Join(autoscalingv1.AddToScheme(ofPolicies), autoscalingv2.AddToScheme(ofPolicies)); err != nil {
		t.Fatal(err)
	}
	scaler := `{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","metadata":{"name":"vanilla"}}`
	list := `{"kind":"HorizontalPodAutoscalerList","apiVersion":"autoscaling/v1","items":[` + scaler + `]}`
	status := `{"kind":"Status","apiVersion":"v1","status":"Success"}`
	clientset := func(body string) *kubernetes.Clientset {
		c, err := lenient.ClientsetFor(&rest.Config{Transport: response(body)}, autoscalingv1.SchemeGroupVersion, ofPolicies, kubernetes.New)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	right, err := clientset(list).AutoscalingV1().HorizontalPodAutoscalers("parlor").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(right.Items) != 1 {
		t.Errorf("of its own version, it lists %v, %v", right, err)
	}
	if err := clientset(status).AutoscalingV1().HorizontalPodAutoscalers("parlor").Delete(t.Context(), "vanilla", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	const want = "this clientset only reads autoscaling/v1"
	if got, err := clientset(list).AutoscalingV2().HorizontalPodAutoscalers("parlor").List(t.Context(), metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("of the other version, it lists %v, %v; want an error with %q", got, err, want)
	}
	if got, err := clientset(scaler).AutoscalingV2().HorizontalPodAutoscalers("parlor").Get(t.Context(), "vanilla", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("of the other version, it gets %v, %v; want an error with %q", got, err, want)
	}
}
