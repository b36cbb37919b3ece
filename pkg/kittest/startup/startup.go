// Package startup tests what programs do with their flags, against an API server that has no objects.
package startup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Test starts processes with the flags in testdata/startup.txt, one on each line, and compares
// what they watch, as only that needs permission, or the one line in which they refuse a flag.
func Test(t *testing.T, run func(ctx context.Context, args []string) error) {
	datadriven.RunTest(t, "testdata/startup.txt", func(t *testing.T, d *datadriven.TestData) string {
		flags := strings.FieldsFunc(d.Input, func(r rune) bool { return r == '\n' })
		switch d.Cmd {
		case "watch":
			want := strings.Fields(d.Expected)
			got := watched(t, run, flags, len(want))
			return strings.Join(got, "\n")
		case "refuse":
			return fmt.Sprint(run(t.Context(), flags))
		}
		d.Fatalf(t, "unknown command %s", d.Cmd)
		return ""
	})
}

// watched runs the program until it has asked for so many resources, and returns these.
func watched(t *testing.T, run func(ctx context.Context, args []string) error, flags []string, want int) []string {
	t.Helper()
	address, paths := emptyCluster(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"empty": {Server: address}},
		Contexts:       map[string]*clientcmdapi.Context{"empty": {Cluster: "empty"}},
		CurrentContext: "empty",
	}, kubeconfig); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stopped := make(chan error, 1)
	go func() {
		stopped <- run(ctx, append(flags, "-kubeconfig="+kubeconfig, "-leader-elect=false", "-bind-address="))
	}()
	for len(paths()) < want {
		select {
		case err := <-stopped:
			t.Fatalf("it watched %q and ended: %v", paths(), err)
		default:
			runtime.Gosched()
		}
	}
	cancel()
	// It may have been stopped before its caches were ready, which it then says.
	if err := <-stopped; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	return paths()
}

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
