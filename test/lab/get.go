package lab

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"testing"
	"time"
)

// Get sends a GET request, with a bearer token unless it is empty. The server's certificate may
// be self-signed. Nothing is compressed, which would take the server a megabyte of memory.
func Get(ctx context.Context, url, token string) (code int, body string, err error) {
	client := &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:    &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
			DisableCompression: true,
			DisableKeepAlives:  true,
		},
		Timeout: Timeout,
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// TryGet sends a GET request to the controller over HTTPS, as [Get] does.
func (c *Controller) TryGet(t testing.TB, path, token string) (code int, body string, err error) {
	t.Helper()
	return Get(t.Context(), "https://"+c.Address(t, true)+path, token)
}

// Get is like TryGet, but tries again, as a kubelet does, if the controller has given up the
// handshake because that took too long, as it may on a busy machine. Any other failure is one
// of the controller.
func (c *Controller) Get(t testing.TB, path, token string) (code int, body string) {
	t.Helper()
	const handshake = 5 * time.Second // after which the controller gives it up
	c.Address(t, true)                // which waits until it serves
	for deadline := time.Now().Add(Timeout); ; {
		began := time.Now()
		code, body, err := c.TryGet(t, path, token)
		if err == nil {
			return code, body
		}
		if took := time.Since(began); took < handshake || time.Now().After(deadline) {
			t.Fatalf("GET %s has no response after %s: %v", path, took.Round(time.Millisecond), err)
		}
	}
}

// Metrics returns the metrics that the controller serves by plain HTTP, which it needs the
// flag -insecure-bind-address for.
func (c *Controller) Metrics(t testing.TB) string {
	t.Helper()
	_, text, err := Get(t.Context(), "http://"+c.Address(t, false)+"/metrics", "")
	if err != nil {
		t.Fatal(err)
	}
	return text
}
