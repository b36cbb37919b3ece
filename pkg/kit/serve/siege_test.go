package serve_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
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

// Thousands of slow connections do not keep a probe from its answer.
func TestSiege(t *testing.T) {
	if testing.Short() {
		t.Skip("opens 2,000 connections")
	}
	s := start(t, loopback(t), nil, nil)
	address := strings.TrimPrefix(s.https, "https://")
	var besieging sync.WaitGroup
	for i := range 2000 {
		besieging.Go(func() {
			connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _ = connection.Close() })
			if i%32 > 0 { // A handshake takes the client's processor, too.
				connection.Write([]byte{22, 3, 1}) //nolint:errcheck // as a handshake begins
				return
			}
			tls.Client(connection, &tls.Config{InsecureSkipVerify: true}).Write([]byte("GET /livez HTTP/1.1\r\n")) //nolint:errcheck // a request without an end
		})
	}
	probe := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
		Timeout:   10 * time.Second,
	}
	for range 3 { // while they come
		got, err := send(t.Context(), probe, http.MethodGet, s.https+"/livez", "")
		if err != nil || got.code != http.StatusOK {
			t.Errorf("a probe gets %d %q: %v", got.code, got.body, err)
		}
	}
	besieging.Wait()
	got, err := send(t.Context(), probe, http.MethodGet, s.https+"/livez", "")
	if err != nil || got.code != http.StatusOK {
		t.Errorf("a probe gets %d %q: %v", got.code, got.body, err)
	}
}
