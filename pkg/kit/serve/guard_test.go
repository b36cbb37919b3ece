package serve_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"
)

// The limits of guard.go.
const (
	perSecond = 10
	burst     = 20
	inFlight  = 5
)

// tally are numbers of answers by status code.
type tally struct {
	mu    sync.Mutex
	codes map[int]int
}

func (t *tally) add(code int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.codes == nil {
		t.codes = map[int]int{}
	}
	t.codes[code]++
}

// Each invented token is one that nobody remembers an answer for.
func TestInventedTokensCauseFewReviews(t *testing.T) {
	s := start(t, loopback(t), nil, nil)
	equal(t, "status code of a scrape", 200, s.ask(t, http.MethodGet, s.https+"/metrics", "scraper").code)
	const senders, each = 20, 50
	begin := time.Now()
	var answers tally
	var sending sync.WaitGroup
	for i := range senders {
		sending.Go(func() {
			for j := range each {
				got, err := s.try(t.Context(), http.MethodGet, s.https+"/metrics", fmt.Sprintf("invented-%d-%d", i, j))
				if err != nil {
					t.Error(err)
					return
				}
				answers.add(got.code)
				if after := got.header.Get("Retry-After"); got.code == http.StatusTooManyRequests && after != "1" {
					t.Errorf("Retry-After is %q, want 1", after)
				}
			}
		})
	}
	sending.Wait()
	most := burst + int(time.Since(begin).Seconds()*perSecond) + 1
	t.Logf("of %d requests: %v", senders*each, answers.codes)
	if n := answers.codes[http.StatusUnauthorized]; n > most || n+answers.codes[http.StatusTooManyRequests] != senders*each {
		t.Errorf("the answers are %v, want 401 up to %d times and 429 for all others", answers.codes, most)
	}
	if n := len(s.requests()) - 2; n > most {
		t.Errorf("the API server was asked %d times, want %d times at most", n, most)
	}
}

// A scrape goes on while others try tokens.
func TestKnownTokensHaveTheirOwnLane(t *testing.T) {
	s := start(t, loopback(t), nil, nil)
	equal(t, "first scrape", 200, s.ask(t, http.MethodGet, s.https+"/metrics", "scraper").code)
	held := make(chan struct{})
	s.mu.Lock()
	s.held = held
	s.mu.Unlock()
	ctx, leave := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	for i := range inFlight {
		sending.Go(func() {
			s.try(ctx, http.MethodGet, s.https+"/metrics", fmt.Sprint("invented-", i)) //nolint:errcheck // nobody waits for it
		})
	}
	isAsked := func(n int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); len(s.requests()) < n; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the API server was asked %q, want %d requests", s.requests(), n)
			}
		}
	}
	isAsked(2 + inFlight)
	leave() // that nobody waits for the answers does not make them cheaper
	sending.Wait()

	equal(t, "one token too many", 429, s.ask(t, http.MethodGet, s.https+"/metrics", "visitor").code)
	equal(t, "next scrape", 200, s.ask(t, http.MethodGet, s.https+"/metrics", "scraper").code)
	equal(t, "a probe", 200, s.ask(t, http.MethodGet, s.https+"/livez", "").code)
	equal(t, "without a token", 401, s.ask(t, http.MethodGet, s.https+"/metrics", "").code)
	equal(t, "requests to the API server", 2+inFlight, len(s.requests()))

	close(held)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if got := s.ask(t, http.MethodGet, s.https+"/metrics", "visitor"); got.code == http.StatusForbidden {
			break
		} else if time.Now().After(end) {
			t.Fatalf("after the reviews have ended the answer is still %d", got.code)
		}
	}
}
