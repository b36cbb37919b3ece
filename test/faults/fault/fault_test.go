package fault_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"nicoleh.io/k8s-controller/test/faults/fault"
)

const answer = "the answer of the API server"

// What happens to one request, and whether it arrives.
func TestRequests(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		fault       fault.Rule
		wantApplied int
		wantArrived bool
		wantAnswer  string // none if empty
	}{
		{fault.Rule{Effect: fault.CloseBefore, Verbs: []string{"list"}}, 0, true, answer},
		{fault.Rule{Effect: fault.CloseBefore, Resources: []string{"pods/status"}}, 0, true, answer},
		{fault.Rule{Effect: fault.CloseBefore, Every: 2}, 0, true, answer},
		{fault.Rule{Effect: fault.CloseBefore, Verbs: []string{"get"}, Resources: []string{"pods"}}, 1, false, ""},
		{fault.Rule{Effect: fault.Delay, After: time.Millisecond}, 1, true, answer},
		{fault.Rule{Effect: fault.HangBefore}, 1, false, ""},
		{fault.Rule{Effect: fault.HangAfter}, 1, true, ""},
		{fault.Rule{Effect: fault.Truncate, Bytes: 10}, 1, true, answer[:10]},
	} {
		t.Run(fmt.Sprint(test.fault), func(t *testing.T) {
			t.Parallel()
			var arrived atomic.Bool
			set := &fault.Set{}
			get := connect(t, set, func(out http.ResponseWriter, _ *http.Request) {
				arrived.Store(true)
				fmt.Fprint(out, answer)
			})
			rule := set.Add(test.fault)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if test.fault.Effect == fault.HangBefore || test.fault.Effect == fault.HangAfter {
				go func() {
					for ctx.Err() == nil && (rule.Applied() == 0 || arrived.Load() != test.wantArrived) {
						time.Sleep(time.Millisecond)
					}
					cancel()
				}()
			}
			got := ""
			if body, err := get(ctx, "/api/v1/namespaces/ns/pods/one"); err == nil {
				read, _ := io.ReadAll(body) // as far as it goes
				got = string(read)
			}
			if got != test.wantAnswer || arrived.Load() != test.wantArrived || rule.Applied() != test.wantApplied {
				t.Errorf("applied %d times, arrived: %t, answer %q", rule.Applied(), arrived.Load(), got)
			}
		})
	}
}

// A watch that is frozen goes on when the fault ends. One that is cut ends.
func TestWatches(t *testing.T) {
	t.Parallel()
	events := make(chan string)
	set := &fault.Set{}
	get := connect(t, set, func(out http.ResponseWriter, in *http.Request) {
		_ = http.NewResponseController(out).Flush()
		for in.Context().Err() == nil {
			select {
			case <-in.Context().Done():
			case event := <-events:
				fmt.Fprintln(out, event)
				_ = http.NewResponseController(out).Flush()
			}
		}
	})
	for _, isCutAlready := range []bool{false, true} {
		cut := fault.Rule{Effect: fault.Cut, After: time.Second}
		if isCutAlready {
			set.Add(cut)
		}
		body, err := get(t.Context(), "/api/v1/pods?watch=true")
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(body)
		frozen := set.Add(fault.Rule{Effect: fault.HangBefore})
		events <- "held"
		held := time.AfterFunc(100*time.Millisecond, frozen.Remove)
		if !lines.Scan() || lines.Text() != "held" || held.Stop() {
			t.Errorf("the frozen watch got %q: %v", lines.Text(), lines.Err())
		}
		if !isCutAlready {
			set.Add(cut)
		}
		if lines.Scan() || lines.Err() == nil {
			t.Errorf("the watch that is cut got %q", lines.Text())
		}
	}
}

// connect returns a function that sends GET requests to an API server behind the faults, and
// returns the body of the response.
func connect(t *testing.T, set *fault.Set, apiServer http.HandlerFunc) func(ctx context.Context, path string) (io.Reader, error) {
	t.Helper()
	behind := httptest.NewServer(apiServer)
	t.Cleanup(behind.Close)
	passOn, err := fault.APIServer(&rest.Config{Host: behind.URL})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewUnstartedServer(set.Handler(passOn))
	front.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that are closed on purpose
	front.StartTLS()
	t.Cleanup(front.Close)
	return func(ctx context.Context, path string) (io.Reader, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, front.URL+path, http.NoBody)
		if err != nil {
			return nil, err
		}
		response, err := front.Client().Do(request)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		return response.Body, nil
	}
}
