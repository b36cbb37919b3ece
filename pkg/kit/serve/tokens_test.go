package serve_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Each invented token is one that nobody remembers an answer for.
func TestInventedTokensCauseFewReviews(t *testing.T) {
	t.Cleanup(func() { // Reviews that wait for the client's rate limit end a little later.
		for deadline := time.Now().Add(20 * time.Second); goleak.Find() != nil && time.Now().Before(deadline); {
			time.Sleep(100 * time.Millisecond)
		}
	})
	s := start(t, loopback(t), nil, nil)
	const burst, perSecond = 10, 10 // see client
	begin := time.Now()
	flood, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	var sending sync.WaitGroup
	for i := range 20 {
		sending.Go(func() {
			for j := 0; flood.Err() == nil; j++ {
				got, err := s.try(flood, http.MethodGet, s.https+"/metrics", fmt.Sprintf("invented-%d-%d", i, j))
				if err == nil && got.code != http.StatusUnauthorized {
					t.Errorf("the answer is %d", got.code)
				}
			}
		})
	}
	equal(t, "a probe", http.StatusOK, s.ask(t, http.MethodGet, s.https+"/livez", "").code)
	sending.Wait()
	asked, most := len(s.requests()), burst+int(time.Since(begin).Seconds()*perSecond)+1
	if asked < burst || asked > most {
		t.Errorf("the API server was asked %d times, want from %d to %d times", asked, burst, most)
	}
}
