package leader

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// limitDelay makes the kernel close a TCP connection, and drop what it has buffered for
// it, when something that was sent has not been acknowledged for that time, in whole
// milliseconds (tcp(7), TCP_USER_TIMEOUT). The time begins with the first retransmission
// or, if the receiver's window is full, when the data was to be sent.
func limitDelay(connection net.Conn, limit time.Duration) error {
	socket, ok := connection.(syscall.Conn)
	if !ok {
		return nil // not a connection of the kernel
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return failed
}
