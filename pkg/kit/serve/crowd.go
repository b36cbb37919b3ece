package serve

import (
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"
)

// maxConnections is the maximum number of connections of one address. The kubelet and
// Prometheus need a handful.
const maxConnections = 128

// crowd limits the connections of an address. When there is one too many, it closes the
// oldest connection of the sender that has the most. So a sender that floods the address
// displaces its own connections, and not a probe of the kubelet.
//
// A limit that makes new connections wait, such as that of golang.org/x/net/netutil, would
// make the probes wait as well.
type crowd struct {
	limit  int
	logger klog.Logger

	mu       sync.Mutex
	present  []visitor // oldest first
	complain rate.Sometimes
}

// visitor is a connection and its sender.
type visitor struct {
	net.Conn
	sender string
}

func newCrowd(limit int, logger klog.Logger) *crowd {
	return &crowd{limit: limit, logger: logger, complain: rate.Sometimes{Interval: time.Minute}}
}

// observe is the ConnState function of an http.Server.
func (c *crowd) observe(connection net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if out := c.enter(connection); out != nil {
			hangUp(out)
		}
	case http.StateClosed, http.StateHijacked:
		c.leave(connection)
	case http.StateActive, http.StateIdle:
	}
}

// enter adds a connection, and returns the one to be closed for it, if any.
func (c *crowd) enter(connection net.Conn) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	sender, _, err := net.SplitHostPort(connection.RemoteAddr().String())
	if err != nil {
		sender = connection.RemoteAddr().String()
	}
	c.present = append(c.present, visitor{connection, sender})
	if len(c.present) <= c.limit {
		return nil
	}
	numbers, most := map[string]int{}, ""
	for _, v := range c.present {
		if numbers[v.sender]++; numbers[v.sender] > numbers[most] {
			most = v.sender
		}
	}
	c.complain.Do(func() {
		c.logger.Info("Too many connections: closing the oldest of the sender that has the most", "sender", most, "connections", numbers[most])
	})
	i := slices.IndexFunc(c.present, func(v visitor) bool { return v.sender == most })
	out := c.present[i].Conn
	c.present = slices.Delete(c.present, i, i+1)
	return out
}

// leave removes a connection.
func (c *crowd) leave(connection net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.present = slices.DeleteFunc(c.present, func(v visitor) bool { return v.Conn == connection })
}

// hangUp closes a connection without the closing message of TLS, which would block if the
// receiver does not read.
func hangUp(connection net.Conn) {
	if secured, ok := connection.(*tls.Conn); ok {
		connection = secured.NetConn()
	}
	connection.Close() //nolint:errcheck // nothing could be done about it
}
