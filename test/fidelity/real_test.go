package fidelity

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/test/lab"
)

// realServer is an API server with etcd and nothing else: no controller, scheduler or kubelet
// interferes.
type realServer struct {
	cluster *cluster.Cluster
	config  *rest.Config
	url     string
	http    *http.Client
	kube    kubernetes.Interface
}

func startReal(t *testing.T) *realServer {
	t.Helper()
	c, err := cluster.Start(t.Context(), cluster.Options{OnlyAPI: true, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	config := c.RESTConfig()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.InstallCRD(c); err != nil {
		t.Fatal(err)
	}
	r := &realServer{cluster: c, config: config, url: config.Host, http: client, kube: kube}
	list := apiserver.Request{Method: http.MethodGet, Path: allPath(icecreams)}
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, lab.Timeout, true, func(context.Context) (bool, error) {
		return r.send(t, list).Code == http.StatusOK, nil
	}); err != nil {
		t.Fatalf("the custom resource is not served: %v", err)
	}
	return r
}

// send sends a request and returns the response.
func (r *realServer) send(t *testing.T, request apiserver.Request) apiserver.Response {
	t.Helper()
	response := r.do(t, t.Context(), request)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return apiserver.Response{Code: response.StatusCode, Body: body}
}

// asMetadata returns what a client of metadata accepts.
func asMetadata(request apiserver.Request) string {
	kind := "PartialObjectMetadata"
	if !request.Query.Has("watch") && slices.ContainsFunc(resources, func(r schema.GroupVersionResource) bool { return r.Resource == path.Base(request.Path) }) {
		kind += "List"
	}
	return "application/json;as=" + kind + ";g=meta.k8s.io;v=v1,application/json"
}

func (r *realServer) do(t *testing.T, ctx context.Context, request apiserver.Request) *http.Response {
	t.Helper()
	made, err := http.NewRequestWithContext(ctx, request.Method, r.url+request.Path+"?"+request.Query.Encode(), bytes.NewReader(request.Body))
	if err != nil {
		t.Fatal(err)
	}
	made.Header.Set("Accept", "application/json")
	made.Header.Set("User-Agent", "unknown") // the manager for the model if a request names none
	if request.AsMetadata {
		made.Header.Set("Accept", asMetadata(request))
	}
	if request.ContentType != "" {
		made.Header.Set("Content-Type", request.ContentType)
	}
	response, err := r.http.Do(made)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// version returns the present version of everything.
func (r *realServer) version(t *testing.T) string {
	t.Helper()
	list, err := r.kube.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	return list.ResourceVersion
}

// createServiceAccount creates the account that Pods without another one run as.
func (r *realServer) createServiceAccount(t *testing.T, namespace string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := r.kube.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// watch returns the first n events of a resource that match, since a version.
func (r *realServer) watch(t *testing.T, path, since string, asMetadata bool, n int, matches func(object map[string]any) bool) []map[string]any {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.Timeout)
	defer cancel()
	request := apiserver.Request{Method: http.MethodGet, Path: path, AsMetadata: asMetadata, Query: map[string][]string{"watch": {"1"}, "resourceVersion": {since}}}
	response := r.do(t, ctx, request)
	defer response.Body.Close()
	decoder := json.NewDecoder(response.Body)
	var events []map[string]any
	for len(events) < n {
		var event map[string]any
		if err := decoder.Decode(&event); err != nil {
			t.Errorf("after %d of %d events of %s: %v", len(events), n, path, err)
			return events
		}
		if object, _ := event["object"].(map[string]any); matches(object) {
			events = append(events, event)
		}
	}
	return events
}
