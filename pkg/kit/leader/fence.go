package leader

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"k8s.io/client-go/rest"
)

// errFenced is the error of a write outside of this process's term.
var errFenced = errors.New("not sent: this process does not lead, or cannot be sure that it still does")

// Fence makes the writes of clients with this config fail while this process does not
// lead. After its term, their connections send nothing at all, so that a request that had
// passed the first check before the process was stopped gets no further.
//
// A request that was sent in time may arrive after the renew deadline, but before the
// lease ends, which is the difference of the two later: where the system supports it, a
// connection is closed if something it sent has not arrived for that long. The package
// comment says what the fence cannot do.
func (e *Election) Fence(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return fence{e.isValid, e.doubt, next} })
	dial := dialOf(config)
	margin := e.config.LeaseDuration.Duration - e.config.RenewDeadline.Duration
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if err := limitDelay(connection, margin); err != nil {
			return nil, errors.Join(fmt.Errorf("limiting how late a request may arrive: %w", err), connection.Close())
		}
		return fencedConnection{connection, e}, nil
	}
}

// fence is a transport that refuses writes outside of this process's term.
type fence struct {
	isValid func() bool
	doubt   func() // is called when a write has ended without a response
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (f fence) RoundTrip(request *http.Request) (*http.Response, error) {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return f.next.RoundTrip(request)
	}
	if !f.isValid() {
		if request.Body != nil {
			request.Body.Close() //nolint:errcheck // nothing was read
		}
		return nil, errFenced
	}
	response, err := f.next.RoundTrip(request)
	if err != nil {
		f.doubt()
	}
	return response, err
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper, with which client-go finds
// the transport below.
func (f fence) WrappedRoundTripper() http.RoundTripper { return f.next }

// fencedConnection is a connection that sends nothing after this process's term.
type fencedConnection struct {
	net.Conn
	election *Election
}

// Write implements net.Conn.
func (c fencedConnection) Write(content []byte) (int, error) {
	if c.election.hasLed() && !c.election.isValid() {
		return 0, errFenced
	}
	return c.Conn.Write(content)
}

// isValid reports whether it is certain that no other process leads.
func (e *Election) isValid() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.candidate.validFor(e.clock.Now()) > 0
}

// hasLed reports whether this process has ever led.
func (e *Election) hasLed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.candidate.led
}

// doubt records that a write has ended without a response, so that the API server may still
// carry it out.
func (e *Election) doubt() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doubtful = e.clock.Now()
}

// inDoubt reports whether a write has ended without a response while a lease lasts.
func (e *Election) inDoubt() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.clock.Since(e.doubtful) < e.config.LeaseDuration.Duration
}
