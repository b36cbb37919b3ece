package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// The proxy applies its faults to a client that has the kubeconfig that it writes.
func TestRun(t *testing.T) {
	t.Parallel()
	apiServer := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		_, _ = out.Write([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one"}}`))
	}))
	t.Cleanup(apiServer.Close)
	dir := t.TempDir()
	behind, front := filepath.Join(dir, "behind"), filepath.Join(dir, "front")
	if err := writeKubeconfig(behind, apiServer.URL); err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	var out buffer
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"-kubeconfig=" + behind, "-write-kubeconfig=" + front, "-fault=verb=get,refuse=409,count=1"}, &out)
	}()
	for end := time.Now().Add(time.Minute); !strings.Contains(out.String(), "KUBECONFIG="+front); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the proxy does not serve; it says %q", out.String())
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", front)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pods := client.CoreV1().Pods("ns")
	if _, err := pods.Get(t.Context(), "one", metav1.GetOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("the first request got %v, want a conflict", err)
	}
	if _, err := pods.Get(t.Context(), "one", metav1.GetOptions{}); err != nil {
		t.Errorf("the second request got %v", err)
	}
	for _, line := range []string{"get pods ns one: refuse (1)\n", "get pods ns one: passed on\n"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("the output does not have %q: %s", line, out.String())
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Without a kubeconfig, or with a fault that makes no sense, nothing starts.
func TestRunFails(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	for want, args := range map[string][]string{
		"there is no reset=later": {"-fault=reset=later"},
		missing:                   {"-kubeconfig=" + missing},
	} {
		if err := run(t.Context(), args, &buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %q: got error %v, want %q", args, err, want)
		}
	}
}

// buffer is a bytes.Buffer that is safe for concurrent use.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
