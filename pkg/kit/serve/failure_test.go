package serve

import (
	"errors"
	"net"
	"testing"
)

// One server without its socket is as good as none.
func TestRunEndsWhenItCannotServe(t *testing.T) {
	s, err := Listen(Config{InsecureBindAddress: "127.0.0.1:0"}, Reviewer{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.listen("-insecure-bind-address", "127.0.0.1:0", nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.sockets[1].Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Run = %v, want %v", err, net.ErrClosed)
	}
}
