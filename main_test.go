package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nicoleh.io/k8s-controller/pkg/kit/kittest"
)

// emptyCluster is an API server with nothing in it: lists are empty, and nothing
// ever happens.
func emptyCluster(t *testing.T) (address string, paths func() []string) {
	t.Helper()
	var mu sync.Mutex
	seen := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		selector := r.URL.Query().Get("labelSelector")
		seen[strings.TrimSuffix(r.URL.Path+"?"+selector, "?")] = true
		mu.Unlock()
		if r.URL.Query().Get("watch") != "" {
			if r.URL.Query().Get("sendInitialEvents") != "" {
				w.WriteHeader(http.StatusUnprocessableEntity) // an older server; the client lists then
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Sorted(maps.Keys(seen))
	}
}

// Only what is watched needs permission, and of others' Pods nothing is asked.
func TestWhatIsWatched(t *testing.T) {
	for _, tt := range []struct {
		name        string
		controllers string
		namespace   string
		want        []string
	}{{
		name:        "secretsync",
		controllers: "secretsync",
		want: []string{
			"/api/v1/namespaces",
			"/api/v1/namespaces/vault/secrets",
			"/api/v1/secrets?controller.nicoleh.io/secretsync-source-namespace=vault",
		},
	}, {
		name:        "everywhere",
		controllers: "*",
		want: []string{
			"/api/v1/pods?controller.nicoleh.io/icecream",
			"/apis/apps/v1/deployments",
			"/apis/controller.nicoleh.io/v1alpha1/icecreams",
		},
	}, {
		name:        "in one namespace",
		controllers: "*",
		namespace:   "parlor",
		want: []string{
			"/api/v1/namespaces/parlor/pods?controller.nicoleh.io/icecream",
			"/apis/apps/v1/namespaces/parlor/deployments",
			"/apis/controller.nicoleh.io/v1alpha1/namespaces/parlor/icecreams",
		},
	}, {
		name:        "podtimestamp alone",
		controllers: "podtimestamp",
		want:        []string{"/api/v1/pods"},
	}, {
		name:        "podtimestamp alone, in one namespace",
		controllers: "podtimestamp",
		namespace:   "parlor",
		want:        []string{"/api/v1/namespaces/parlor/pods"},
	}} {
		t.Run(tt.name, func(t *testing.T) {
			address, paths := emptyCluster(t)
			ctx, cancel := context.WithCancel(t.Context())
			stopped := make(chan error, 1)
			go func() {
				stopped <- newProgram().Run(ctx, []string{
					"-master=" + address, "-controllers=" + tt.controllers, "-namespace=" + tt.namespace,
					"-leader-elect=false", "-bind-address=", "-secretsync-source-namespace=vault",
				})
			}()
			for len(paths()) < len(tt.want) {
				select {
				case err := <-stopped:
					t.Fatalf("ended: %v", err)
				default:
					runtime.Gosched()
				}
			}
			cancel()
			// It may have been stopped before its caches were ready, which it then says.
			if err := <-stopped; err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
			if diff := cmp.Diff(tt.want, paths()); diff != "" {
				t.Errorf("watched (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever is wrong with a flag is said in one line.
func TestFlagErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want []string // to be found in one line
	}{
		{"a negative window", []string{"-icecream-status-window", "-1s"}, []string{"-icecream-status-window"}},
		{"a negative patience", []string{"-icecream-stall-after", "-1s"}, []string{"-icecream-stall-after"}},
		{"a negative window by its former name", []string{"-status-window", "-1s"}, []string{"-icecream-status-window"}},
		{"two names for one flag", []string{"-stall-after=2s", "-icecream-stall-after=3s"}, []string{"-stall-after", "2s", "-icecream-stall-after", "3s"}},
		{"a controller that does not exist", []string{"-controllers", "icecream,cake"}, []string{"-controllers", `"cake"`, "icecream"}},
		{"no controller", []string{"-controllers=-icecream,*"}, []string{"-controllers", "nothing"}},
		{"secretsync in one namespace", []string{"-controllers", "secretsync", "-namespace", "team"}, []string{"-namespace=team", "secretsync"}},
		{"no namespace of sources", []string{"-controllers", "secretsync", "-secretsync-source-namespace="}, []string{"-secretsync-source-namespace"}},
		{"an annotation with a space", []string{"-controllers", "*,secretsync", "-secretsync-annotation", "a b"}, []string{"-secretsync-annotation", `"a b"`}},
		{"a share of nodes that is none", []string{"-nodereboot-max-unavailable", "101%"}, []string{"-nodereboot-max-unavailable", `"101%"`}},
		{"a pool without a budget", []string{"-nodereboot-pool", "pool=db=1;zone"}, []string{"-nodereboot-pool", `"zone"`}},
		{"a window that is never open", []string{"-nodereboot-window", "Mon 04:00-04:00"}, []string{"-nodereboot-window", "never open"}},
		{"no time zone", []string{"-nodereboot-time-zone", "Berlin"}, []string{"-nodereboot-time-zone", "Berlin"}},
		{"alerts of nobody", []string{"-nodereboot-alerts", "Etcd.*"}, []string{"-nodereboot-prometheus-url"}},
		{"any alert", []string{"-nodereboot-prometheus-url", "http://prometheus"}, []string{"-nodereboot-alerts"}},
		{"alerts of no name", []string{"-nodereboot-prometheus-url", "http://prometheus", "-nodereboot-alerts", "("}, []string{"-nodereboot-alerts"}},
		{"all Pods", []string{"-nodereboot-blocking-pods", "job=x;"}, []string{"-nodereboot-blocking-pods", "all Pods"}},
		{"grants before the last", []string{"-nodereboot-min-interval", "-1s"}, []string{"-nodereboot-min-interval"}},
		{"nodes of one namespace", []string{"-controllers", "nodereboot", "-namespace", "parlor"}, []string{"-namespace=parlor", "nodereboot"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kittest.RequireOneLine(t, newProgram().Run(t.Context(), tt.args), tt.want)
		})
	}
}
