package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"
)

// dial opens a connection from that address.
func dial(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	connection, err := dialer.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	return connection
}

// isOpen reports whether the connection, on which nothing is sent, is open after that time.
func isOpen(t *testing.T, connection net.Conn, wait time.Duration) bool {
	t.Helper()
	if err := connection.SetReadDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	_, err := connection.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// Of one address, 64 connections are open. More are closed at once, and keep no other address
// from its answer.
func TestFloodOfConnections(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs two loopback addresses")
	}
	const flood, other = "127.0.0.1", "127.0.0.2"
	c := loopback(t)
	c.BindAddress = ":0" // where addresses are IPv4-mapped
	server, err := Listen(c, (&cluster{}).client(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range server.servers {
		s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout = 0, 0, 0 // Nothing else ends a silent connection.
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	defer func() {
		cancel()
		equal(t, "Run", nil, <-ended)
	}()
	for i, scheme := range []string{"https", "http"} {
		_, port, err := net.SplitHostPort(server.Addresses()[i])
		if err != nil {
			t.Fatal(err)
		}
		address := net.JoinHostPort("127.0.0.1", port)
		probe := func(from string) (string, error) {
			transport := &http.Transport{
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
				DialContext:     func(context.Context, string, string) (net.Conn, error) { return dial(t, from, address), nil },
			}
			defer transport.CloseIdleConnections()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://"+address+"/livez", http.NoBody)
			if err != nil {
				return "", err
			}
			response, err := transport.RoundTrip(r)
			if err != nil {
				return "", err
			}
			defer response.Body.Close()
			answer, err := io.ReadAll(response.Body)
			return string(answer), err
		}

		var connections []net.Conn
		for range 2000 {
			connections = append(connections, dial(t, flood, address))
		}
		for n, connection := range connections[64:] {
			if isOpen(t, connection, 10*time.Second) {
				t.Fatalf("%s: connection %d is open", scheme, 65+n)
			}
		}
		for n, connection := range connections[:64] {
			if !isOpen(t, connection, time.Millisecond) {
				t.Errorf("%s: connection %d is closed", scheme, 1+n)
			}
		}
		if answer, err := probe(flood); err == nil {
			t.Errorf("%s: the answer to one connection more is %q", scheme, answer)
		}
		if answer, err := probe(other); answer != "ok" {
			t.Errorf("%s: the answer to another address is %q and %v", scheme, answer, err)
		}
		for _, connection := range connections {
			connection.Close() //nolint:errcheck // it can be closed already
		}
		begin := time.Now()
		for answer, err := probe(flood); answer != "ok"; answer, err = probe(flood) {
			if time.Since(begin) > time.Minute {
				t.Fatalf("%s: after the flood, the answer is %q and %v", scheme, answer, err)
			}
		}
	}
}

// A connection that is closed twice, as package tls can do, makes room for one.
func TestConnectionIsReleasedOnce(t *testing.T) {
	s := &Server{}
	if err := s.listen("-bind-address", "127.0.0.1:0", nil); err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for i := range 65 {
		client := dial(t, "127.0.0.1", s.Addresses()[0])
		defer client.Close()
		connection, err := s.sockets[0].Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		if i == 0 {
			errs := []error{connection.Close(), connection.Close()}
			equal(t, "the second one fails", []bool{false, true}, []bool{errs[0] != nil, errs[1] != nil})
		}
	}
	accepted := make(chan error, 1)
	go func() {
		_, err := s.sockets[0].Accept()
		accepted <- err
	}()
	excess := dial(t, "127.0.0.1", s.Addresses()[0])
	defer excess.Close()
	if isOpen(t, excess, 10*time.Second) {
		t.Error("65 connections are open")
	}
	s.close()
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept returned %v", err)
	}
}
