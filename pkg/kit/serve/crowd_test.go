package serve

import (
	"net"
	"net/http"
	"testing"

	"k8s.io/klog/v2"
)

// knock is a connection from an address.
type knock struct {
	net.Conn
	from   net.Addr
	closed bool
}

func (k *knock) RemoteAddr() net.Addr { return k.from }
func (k *knock) Close() error         { k.closed = true; return nil }

// A flood displaces itself.
func TestSenderWithMostConnectionsLosesTheOldest(t *testing.T) {
	c := newCrowd(6, klog.Background())
	var ports int
	come := func(ip string) *knock {
		ports++
		k := &knock{from: &net.TCPAddr{IP: net.ParseIP(ip), Port: ports}}
		c.observe(k, http.StateNew)
		return k
	}
	kubelet, prometheus := come("192.0.2.1"), come("2001:db8::1")
	flood := []*knock{come("192.0.2.66"), come("192.0.2.66"), come("192.0.2.66"), come("192.0.2.66")}
	for _, k := range append(flood, kubelet, prometheus) {
		if k.closed {
			t.Fatalf("%s was closed, and there was room", k.from)
		}
	}

	for i := range 100 { // one more each time
		flood = append(flood, come("192.0.2.66"))
		if !flood[i].closed || flood[i+1].closed {
			t.Fatalf("of the flood, number %d is closed: %t, and the next: %t", i, flood[i].closed, flood[i+1].closed)
		}
	}
	again := come("2001:db8::1") // now there are two of this one and four of the flood
	if kubelet.closed || prometheus.closed || again.closed {
		t.Error("a sender of few connections lost one")
	}

	// Those that end make room.
	for _, k := range []*knock{kubelet, prometheus, again} {
		c.observe(k, http.StateActive)
		c.observe(k, http.StateIdle)
		c.observe(k, http.StateClosed)
	}
	for range 3 {
		flood = append(flood, come("192.0.2.67"))
	}
	if n := len(c.present); n != 6 {
		t.Errorf("%d connections are counted, want 6", n)
	}
	for i, k := range flood[len(flood)-6:] {
		if k.closed {
			t.Errorf("number %d of the last six was closed, and there was room", i)
		}
	}
	for _, k := range flood { // also those that were closed by the server
		c.observe(k, http.StateClosed)
	}
	if n := len(c.present); n != 0 {
		t.Errorf("%d connections are counted when none is left", n)
	}
}
