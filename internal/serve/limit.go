package serve

import (
	"net"
	"net/netip"
	"sync"
)

// maxConnections limits the connections of one source address. Probes and scrapes need a few.
const maxConnections = 64

// limited is a listener that immediately closes connections beyond maxConnections of one source address.
// A queue, or a limit for all addresses together, would let one client keep probes waiting.
type limited struct {
	*net.TCPListener
	mu   sync.Mutex
	open map[netip.Addr]int
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		connection, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		remote, _ := connection.RemoteAddr().(*net.TCPAddr)
		source := remote.AddrPort().Addr()
		if l.acquire(source) {
			return &counted{connection, sync.OnceFunc(func() { l.release(source) })}, nil
		}
		connection.Close() //nolint:errcheck // it was never used
	}
}

func (l *limited) acquire(source netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[source] == maxConnections {
		return false
	}
	l.open[source]++
	return true
}

func (l *limited) release(source netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[source]--; l.open[source] == 0 {
		delete(l.open, source)
	}
}

// counted is a connection that can be closed more than once.
type counted struct {
	*net.TCPConn
	release func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.release()
	return c.TCPConn.Close()
}
