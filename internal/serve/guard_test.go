package serve

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// page returns a function that gets a page that is guarded, with a token, and returns the response.
func (c *cluster) page(t *testing.T) func(token string) string {
	t.Helper()
	guarded := newGuard(c.client()).protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") }))
	return func(token string) string {
		r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics?name=x", nil), httptest.NewRecorder()
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		guarded.ServeHTTP(w, r)
		return fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String()))
	}
}

const (
	isUnknown   = "401 Unauthorized"
	isForbidden = "403 Forbidden"
	isUndecided = "503 Authorization check failed"
	isServed    = "200 metrics"
)

func TestMetricsAreForAuthorizedClientsOnly(t *testing.T) {
	const who, may = "tokenreviews", "subjectaccessreviews"
	for name, tt := range map[string]struct {
		token  string
		refuse map[string]int
		want   string
		asked  []string
	}{
		"nobody in particular":                      {"", nil, isUnknown, nil},
		"a token that nobody knows":                 {"stranger", nil, isUnknown, []string{who}},
		"somebody without permission":               {"visitor", nil, isForbidden, []string{who, may}},
		"somebody with permission":                  {"scraper", nil, isServed, []string{who, may}},
		"the API server cannot say who it is":       {"scraper", map[string]int{who: 0}, isUnknown, []string{who}},
		"this program may not ask who it is":        {"scraper", map[string]int{who: 403}, isUnknown, []string{who}},
		"the API server cannot say what is allowed": {"scraper", map[string]int{may: 0}, isUndecided, []string{who, may}},
		"this program may not ask what is allowed":  {"scraper", map[string]int{may: 403}, isUndecided, []string{who, may}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &cluster{refuse: tt.refuse}
				equal(t, "response", tt.want, c.page(t)(tt.token))
				equal(t, "requests to the API server", tt.asked, c.requests())
			})
		})
	}
}

// A client that tries the same token again and again is no load on the API server.
func TestTokensAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{}
		get := c.page(t)
		for range 3 {
			for token, want := range map[string]string{"scraper": isServed, "visitor": isForbidden, "stranger": isUnknown} {
				equal(t, "response to "+token, want, get(token))
			}
		}
		equal(t, "number of reviews", 3+2, len(c.requests()))
	})
}

// Each invented token is one that nobody remembers an answer for.
func TestInventedTokensCauseFewReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst, perSecond = 10, 10 // see client
		c, begin := &cluster{}, time.Now()
		get := c.page(t)
		var sending sync.WaitGroup
		for i := range 20 {
			sending.Go(func() {
				for j := 0; time.Since(begin) < time.Minute; j++ {
					equal(t, "response", isUnknown, get(fmt.Sprintf("invented-%d-%d", i, j)))
				}
			})
		}
		sending.Wait()
		asked, most := len(c.requests()), burst+int(time.Since(begin).Seconds()*perSecond)+1
		if asked < burst || asked > most {
			t.Errorf("the API server was asked %d times, want from %d to %d times", asked, burst, most)
		}
	})
}

// While 250 others ask, a scrape is answered before Prometheus gives up, which it does after
// ten seconds. If the others have one token, it gets its metrics.
func TestScrapeWhileOthersAsk(t *testing.T) {
	for name, tt := range map[string]struct {
		token func(i int) string
		want  map[string]bool // the responses that the scrape can get
	}{
		"with one token":      {func(int) string { return "visitor" }, map[string]bool{isServed: true}},
		"each with its token": {func(i int) string { return fmt.Sprint("visitor-", i) }, map[string]bool{isServed: true, isUnknown: true, isUndecided: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &cluster{}
				get := c.page(t)
				var asking sync.WaitGroup
				for i := range 250 {
					asking.Go(func() { get(tt.token(i)) })
				}
				time.Sleep(time.Millisecond)
				begin := time.Now()
				if got := get("scraper"); !tt.want[got] {
					t.Errorf("the scrape gets %s", got)
				}
				if took := time.Since(begin); took >= 10*time.Second {
					t.Errorf("the scrape takes %s", took)
				}
				asking.Wait()
				synctest.Wait()
				if reviews := len(c.requests()); tt.token(0) == tt.token(1) && reviews != 4 {
					t.Errorf("there were %d reviews, want two of each client", reviews)
				}
			})
		})
	}
}
