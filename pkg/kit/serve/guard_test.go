package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// reviewer is an API server that knows every token, by its own name, and lets the "scraper" get
// everything.
type reviewer struct {
	mu      sync.Mutex
	reviews int
}

// RoundTrip implements http.RoundTripper.
func (s *reviewer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reviews++
	var review struct {
		Spec struct {
			Token string `json:"token"`
			User  string `json:"user"`
		} `json:"spec"`
		Status struct {
			Authenticated bool                      `json:"authenticated"`
			User          authenticationv1.UserInfo `json:"user"`
			Allowed       bool                      `json:"allowed"`
		} `json:"status"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		return nil, err
	}
	review.Status.Authenticated, review.Status.User.Username = true, review.Spec.Token
	review.Status.Allowed = review.Spec.User == "scraper"
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// While 250 others ask, a scrape is answered before Prometheus gives up, which it does after
// ten seconds. If the others have one token, it gets its metrics.
func TestScrapeWhileOthersAsk(t *testing.T) {
	for name, tt := range map[string]struct {
		token func(i int) string
		want  map[int]bool // the status codes that the scrape can get
	}{
		"with one token":      {func(int) string { return "visitor" }, map[int]bool{http.StatusOK: true}},
		"each with its token": {func(i int) string { return fmt.Sprint("visitor-", i) }, map[int]bool{http.StatusOK: true, http.StatusUnauthorized: true, http.StatusServiceUnavailable: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &reviewer{}
				client, err := kubernetes.NewForConfig(&rest.Config{
					Transport: server, QPS: 10, Burst: 10, Timeout: 10 * time.Second, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
				})
				if err != nil {
					t.Fatal(err)
				}
				page := newGuard(client).protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				get := func(token string) int {
					request, response := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil), httptest.NewRecorder()
					request.Header.Set("Authorization", "Bearer "+token)
					page.ServeHTTP(response, request)
					return response.Code
				}
				var asking sync.WaitGroup
				for i := range 250 {
					asking.Go(func() { get(tt.token(i)) })
				}
				time.Sleep(time.Millisecond)
				begin := time.Now()
				if code := get("scraper"); !tt.want[code] {
					t.Errorf("the scrape gets %d", code)
				}
				if took := time.Since(begin); took >= 10*time.Second {
					t.Errorf("the scrape takes %s", took)
				}
				asking.Wait()
				synctest.Wait()
				if tt.token(0) == tt.token(1) && server.reviews != 4 {
					t.Errorf("there were %d reviews, want two of each client", server.reviews)
				}
			})
		})
	}
}
