package lab

import (
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// ClientOf returns a client with that token.
func (l *Lab) ClientOf(t testing.TB, token string) kubernetes.Interface {
	t.Helper()
	config := rest.AnonymousClientConfig(l.RESTConfig())
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Impersonate returns a client that acts as another user.
func (l *Lab) Impersonate(t testing.TB, user string) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(l.RESTConfig())
	config.Impersonate.UserName = user
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
