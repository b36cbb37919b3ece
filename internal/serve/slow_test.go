package serve

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
)

// pipes is a listener whose connections are in memory, and take no time.
type pipes struct {
	offered chan net.Conn
	close   func()
	closed  chan struct{}
}

func newPipes() *pipes {
	p := &pipes{offered: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.offered:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.offered <- server
	return client
}

// serveOne serves one connection in the current bubble until stop is called.
func serveOne(t *testing.T, live ...healthz.HealthChecker) (connection net.Conn, stop func()) {
	t.Helper()
	listener := newPipes()
	s := &Server{[]*http.Server{newServer(live, nil, http.NotFoundHandler())}, []net.Listener{listener}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return listener.dial(), func() {
		cancel()
		equal(t, "Run", nil, <-ended)
	}
}

// Nobody keeps a connection by being slow: not with the request, not with its body,
// not with reading the answer, and not with the next request.
func TestSlowSenders(t *testing.T) {
	const long = "GET /livez HTTP/1.1\r\nHost: x\r\n"
	tests := []struct {
		name string
		send string        // at once
		then string        // a byte every time, over and over again
		wait time.Duration // between these
		read bool
		want string        // the beginning of the answer
		most time.Duration // until the end of the connection
	}{
		{"nothing comes", "", "", 0, true, "", 5 * time.Second},
		{"a header comes byte by byte", long, "X-Long: 1\r\n", time.Second, true, "", 5 * time.Second},
		{"a body comes byte by byte", long + "Content-Length: 200000\r\n\r\n", "x", 5 * time.Second, true, "HTTP/1.1 200 ", 16 * time.Second},
		{"a body comes in chunks", long + "Transfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n", time.Second, true, "HTTP/1.1 200 ", 16 * time.Second},
		{"no other request follows", long + "\r\n", "", 0, true, "HTTP/1.1 200 ", 90 * time.Second},
		{"the answer is not read", long + "\r\n", "", 0, false, "", 35 * time.Second},
		{"a header has no end", long + "X-Long: ", "", 0, true, "", 5 * time.Second},
		{"a header is too long", long + "X-Long: " + strings.Repeat("x", 40<<10) + "\r\n\r\n", "", 0, true, "HTTP/1.1 431 ", 5 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				connection, stop := serveOne(t)
				var sending sync.WaitGroup
				begin := time.Now()
				sending.Go(func() {
					_, err := connection.Write([]byte(tt.send))
					for i := 0; err == nil && tt.then != ""; i++ {
						time.Sleep(tt.wait)
						_, err = connection.Write([]byte{tt.then[i%len(tt.then)]})
					}
				})
				if !tt.read {
					time.Sleep(tt.most)
				}
				answer, err := io.ReadAll(connection)
				if err != nil && !errors.Is(err, io.ErrClosedPipe) {
					t.Error(err)
				}
				if !bytes.HasPrefix(answer, []byte(tt.want)) {
					t.Errorf("the answer is %q, want %q", answer, tt.want)
				}
				if took := time.Since(begin); took > tt.most {
					t.Errorf("the connection lasted %s, want %s at most", took, tt.most)
				}
				connection.Close() //nolint:errcheck // it is in memory
				stop()
				sending.Wait()
			})
		})
	}
}

// The end awaits an answer that is under way, but not for ever.
func TestTheEndAwaitsAnAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		takes time.Duration // to answer
		want  string        // the beginning of the answer
	}{
		"soon":  {time.Second / 2, "HTTP/1.1 200 "},
		"never": {time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				connection, stop := serveOne(t, healthz.NamedCheck("slow", func(*http.Request) error { time.Sleep(tt.takes); return nil }))
				if _, err := connection.Write([]byte("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				begin := time.Now()
				var reading sync.WaitGroup
				reading.Go(func() {
					answer, err := io.ReadAll(connection)
					if err != nil || tt.want == "" && len(answer) > 0 || !bytes.HasPrefix(answer, []byte(tt.want)) {
						t.Errorf("the answer is %q and %v, want %q", answer, err, tt.want)
					}
				})
				stop()
				if took := time.Since(begin); took > time.Second {
					t.Errorf("the end took %s", took)
				}
				reading.Wait()
				time.Sleep(time.Hour) // until the check ends
			})
		})
	}
}
