package e2e

import (
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"nicoleh.io/k8s-controller/test/lab"
)

// kubectl runs kubectl, which has to succeed, and returns its output.
func kubectl(t *testing.T, l *lab.Lab, args ...string) string {
	t.Helper()
	output, err := l.TryKubectl(t.Context(), "", args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// eventually waits until check returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(lab.Patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("it did not come about that %s: %v", what, err)
}

// clientOf returns a client with that token.
func clientOf(t *testing.T, l *lab.Lab, token string) kubernetes.Interface {
	t.Helper()
	config := rest.AnonymousClientConfig(l.RESTConfig())
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
