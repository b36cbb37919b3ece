//go:build !linux

package leader

import (
	"net"
	"time"
)

// limitDelay does nothing where the kernel cannot.
func limitDelay(net.Conn, time.Duration) error { return nil }
