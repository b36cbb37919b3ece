package leader

import (
	"errors"
	"net/http"
	"testing"
)

// sent is a transport that counts what it sends.
type sent int

func (s *sent) RoundTrip(*http.Request) (*http.Response, error) {
	*s++
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestFenceRefusesWrites(t *testing.T) {
	var next sent
	holds := true
	transport := fence{isValid: func() bool { return holds }, doubt: func() {}, next: &next}
	for _, tt := range []struct {
		method string
		holds  bool
		want   error
	}{
		{http.MethodGet, true, nil},
		{http.MethodPatch, true, nil},
		{http.MethodGet, false, nil},
		{http.MethodPatch, false, errFenced},
		{http.MethodDelete, false, errFenced},
		{http.MethodDelete, true, nil},
	} {
		holds = tt.holds
		before := next
		request, err := http.NewRequestWithContext(t.Context(), tt.method, "http://server/", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s while it holds is %t: %v, want %v", tt.method, tt.holds, err, tt.want)
		}
		if isSent := next > before; isSent != (tt.want == nil) {
			t.Errorf("%s while it holds is %t: sent %t", tt.method, tt.holds, isSent)
		}
		if err == nil {
			response.Body.Close() //nolint:errcheck // it is empty
		}
	}
}
