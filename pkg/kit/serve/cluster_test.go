package serve_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// cluster is an API server that knows the tokens "scraper", "visitor" and
// "doubtful", and lets the first get /metrics. It is reached without a network.
type cluster struct {
	mu     sync.Mutex
	asked  []string // the resources, in order
	access authorizationv1.SubjectAccessReviewSpec
	refuse map[string]int // the status code for a resource; 0 if it cannot be reached
}

// client returns a client with the rate limit that the manager sets.
func (c *cluster) client() kubernetes.Interface {
	config := &rest.Config{Host: "http://server", QPS: 10, Burst: 10, Timeout: 10 * time.Second, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: c})
	if err != nil {
		panic(err)
	}
	return client
}

// RoundTrip implements http.RoundTripper.
func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	c.mu.Lock()
	c.asked = append(c.asked, resource)
	defer c.mu.Unlock()
	if code, ok := c.refuse[resource]; ok {
		if code == 0 {
			return nil, errors.New("connect: connection refused")
		}
		return answer(r, code, metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Code: int32(code), Reason: metav1.StatusReasonForbidden,
		})
	}
	switch resource {
	case "tokenreviews":
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			return nil, err
		}
		switch token := review.Spec.Token; token {
		case "scraper", "visitor":
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: token, Groups: []string{"people"}}}
		case "doubtful":
			review.Status.Error = "the token has expired"
		}
		return answer(r, http.StatusCreated, review)
	case "subjectaccessreviews":
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			return nil, err
		}
		c.access = review.Spec
		review.Status.Allowed = review.Spec.User == "scraper" && review.Spec.NonResourceAttributes != nil &&
			review.Spec.NonResourceAttributes.Verb == "get" && review.Spec.NonResourceAttributes.Path == "/metrics"
		return answer(r, http.StatusCreated, review)
	}
	return nil, errors.New("nobody should ask for " + resource)
}

// requests are the resources that were asked for.
func (c *cluster) requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.asked...)
}

func answer(r *http.Request, code int, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	return &http.Response{
		StatusCode: code,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(bytes.NewReader(text)),
		Request:    r,
	}, err
}
