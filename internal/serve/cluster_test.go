package serve

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// cluster is an API server that knows the token "scraper" and those that begin with "visitor",
// and lets the first get /metrics. It is reached without a network.
type cluster struct {
	mu     sync.Mutex
	asked  []string       // the resources, in order
	refuse map[string]int // the status code for a resource; 0 if it cannot be reached
}

// client returns a client with the rate limit that the manager sets.
func (c *cluster) client() kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(&rest.Config{
		Transport: c, QPS: 10, Burst: 10, Timeout: 10 * time.Second, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
	})
}

// RoundTrip implements http.RoundTripper.
func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	resource := path.Base(r.URL.Path)
	c.asked = append(c.asked, resource)
	code, isRefused := c.refuse[resource]
	if isRefused && code == 0 {
		return nil, errors.New("connect: connection refused")
	}
	var review struct {
		Spec struct {
			Token string `json:"token"`
			authorizationv1.SubjectAccessReviewSpec
		} `json:"spec"`
		Status struct {
			authenticationv1.TokenReviewStatus
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		return nil, err
	}
	if token := review.Spec.Token; token == "scraper" || strings.HasPrefix(token, "visitor") {
		review.Status.Authenticated, review.Status.User.Username, review.Status.User.Groups = true, token, []string{"people"}
	}
	review.Status.Allowed = cmp.Equal(review.Spec.SubjectAccessReviewSpec, authorizationv1.SubjectAccessReviewSpec{
		User:                  "scraper",
		Groups:                []string{"people", "system:authenticated"},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	})
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	if isRefused {
		w.WriteHeader(code)
	}
	err := json.NewEncoder(w).Encode(review)
	return w.Result(), err
}

// requests are the resources that were asked for.
func (c *cluster) requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.asked)
}
