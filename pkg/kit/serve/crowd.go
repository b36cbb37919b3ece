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

// maxConnections is how many connections one address has at most. The kubelet and
// Prometheus need a handful.
const maxConnections = 128

// crowd keeps the connections of an address within a limit. When one more comes, it
// is let in, and the oldest one of the sender with the most has to go. So whoever
// sends a flood displaces their own connections, and not a probe of the kubelet.
//
// A limit that has newcomers wait, as that of golang.org/x/net/netutil, would have
// the probes wait as well.
type crowd struct {
	limit  int
	logger klog.Logger

	mu       sync.Mutex
	present  []visitor // in the order in which they came
	complain rate.Sometimes
}

// visitor is a connection, and where it comes from.
type visitor struct {
	net.Conn
	sender string
}

func newCrowd(limit int, logger klog.Logger) *crowd {
	return &crowd{limit: limit, logger: logger, complain: rate.Sometimes{Interval: time.Minute}}
}

// observe is for http.Server.ConnState.
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

// enter adds a connection, and returns the one that has to go for it, if any.
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

func (c *crowd) leave(connection net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.present = slices.DeleteFunc(c.present, func(v visitor) bool { return v.Conn == connection })
}

// hangUp closes a connection without a word: the farewell of TLS may have to wait for
// a receiver who takes nothing.
func hangUp(connection net.Conn) {
	if secured, ok := connection.(*tls.Conn); ok {
		connection = secured.NetConn()
	}
	connection.Close() //nolint:errcheck // nobody is there to mind
}
