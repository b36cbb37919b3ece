package leader

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
)

// fenced is a connection of a leader to somebody who reads nothing, and the margin
// that its lease leaves it.
func fenced(t *testing.T, lease, deadline time.Duration) net.Conn {
	t.Helper()
	c := usual
	c.LeaseDuration.Duration, c.RenewDeadline.Duration, c.RetryPeriod.Duration = lease, deadline, deadline/2
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)) // which stands still
	e, err := New(c, reach(fake.NewClientset()), clock)
	if err != nil {
		t.Fatal(err)
	}
	e.lead(t)
	config := &rest.Config{}
	e.Fence(config)
	connection, err := config.Dial(t.Context(), "tcp", listen(t).Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() }) //nolint:errcheck // the kernel may have closed it
	return connection
}

func TestTheKernelKnowsHowLateSomethingMayArrive(t *testing.T) {
	raw, err := fenced(t, 15*time.Second, 9500*time.Millisecond).(fencedConnection).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got int
	var failed error
	if err := raw.Control(func(fd uintptr) { got, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	if got != 5500 {
		t.Errorf("TCP_USER_TIMEOUT is %d ms, want 5500", got)
	}
}

// What waits in the kernel's buffer does not arrive under the next leader.
func TestTheKernelDropsWhatDoesNotArrive(t *testing.T) {
	connection := fenced(t, 2*time.Second, time.Second)
	if err := connection.SetWriteDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil { // until no more fits, and then until it is given up
		_, err = connection.Write(make([]byte, 64<<10))
	}
	if !errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("the connection ends with %v, want %v", err, syscall.ETIMEDOUT)
	}
}
