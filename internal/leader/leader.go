// Package leader runs work in one of several processes at a time, and refuses the writes
// of a process that may no longer lead.
//
// The election is client-go's (KEP-589, k8s.io/client-go/tools/leaderelection). It cannot
// stop a leader that was suspended in the middle of a sync: the first instruction after it
// wakes up can be a write. So this package adds a fence: a RoundTripper that lets a write
// pass only while the last renewal is younger than the renew deadline, by the machine's
// monotonic clock and by its wall clock. Another process waits for the whole lease
// duration, which is longer; what was sent last arrives in between.
//
// The fence cannot stop a write that has passed it, such as one that waits for a
// connection. It needs a clock that moves, and a Lease that others respect. For the rest,
// writes have preconditions, by which the API server refuses what was decided for another
// state of the object.
package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/component-base/config"
	"k8s.io/klog/v2"
)

// ErrLost is the error of Run when another process holds the Lease, or may hold it. The
// work may still be running, so the process has to end.
var ErrLost = errors.New("leadership lost")

// errFenced is the error of a write outside of this process's term.
var errFenced = errors.New("not sent: this process is not certain to hold the Lease")

// minMargin is the minimum time between the last write of a leader and the first of the
// next one. What the leader has sent last needs time to arrive.
const minMargin = time.Second

// Election is one process's part in an election. It runs once.
type Election struct {
	config  config.LeaderElectionConfiguration
	lock    *lock
	health  *leaderelection.HealthzAdaptor
	elector *leaderelection.LeaderElector
	leads   chan struct{} // closed when the term begins
}

// New returns an election for a Lease. cluster is how to reach it, and must not be fenced. New starts nothing.
func New(c config.LeaderElectionConfiguration, cluster *rest.Config) (*Election, error) {
	lease, deadline := c.LeaseDuration.Duration, c.RenewDeadline.Duration
	switch {
	case lease%time.Second != 0:
		return nil, fmt.Errorf("-leader-elect-lease-duration must be whole seconds, and is %s: a Lease stores no fractions, so another process would take over early", lease)
	case lease-deadline < minMargin:
		return nil, fmt.Errorf("-leader-elect-renew-deadline (%s) must be at least %s shorter than -leader-elect-lease-duration (%s), so that the leader's last write can arrive", deadline, minMargin, lease)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	// No other request delays a renewal, and one that hangs does not hold up the next:
	// unlike HTTP/2, HTTP/1.1 gives up the connection of a request that has timed out.
	cluster = rest.CopyConfig(cluster)
	cluster.QPS, cluster.RateLimiter = -1, nil
	cluster.NextProtos = []string{"http/1.1"}
	inner, err := resourcelock.NewFromKubeconfig(c.ResourceLock, c.ResourceNamespace, c.ResourceName,
		resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}, cluster, deadline)
	if err != nil {
		return nil, err
	}
	e := &Election{
		config: c,
		lock:   &lock{Interface: inner, deadline: deadline, taken: make(chan struct{})},
		health: leaderelection.NewLeaderHealthzAdaptor(minMargin),
		leads:  make(chan struct{}),
	}
	e.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          e.lock,
		LeaseDuration: lease,
		RenewDeadline: deadline,
		RetryPeriod:   c.RetryPeriod.Duration,
		WatchDog:      e.health,
		Name:          c.ResourceName,
		// ReleaseOnCancel stays off: it would release the Lease while the last writes are
		// still on their way.
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(e.leads) },
			OnStoppedLeading: func() {},
			OnNewLeader:      func(leader string) { klog.Background().Info("New leader", "identity", leader) },
		},
	})
	if err != nil {
		return nil, err
	}
	e.health.SetLeaderElection(e.elector)
	return e, nil
}

// Check is a health check that fails if this process leads but has not noticed that its
// Lease has expired.
func (e *Election) Check(r *http.Request) error { return e.health.Check(r) }

// Ready returns an error until the Lease has been read or created once: until then, this
// process may be unable to lead.
func (e *Election) Ready() error {
	e.lock.mu.Lock()
	defer e.lock.mu.Unlock()
	if !e.lock.isReached {
		return fmt.Errorf("the Lease %s could neither be read nor created yet", e.lock.Describe())
	}
	return nil
}

// Run waits until this process leads and then calls work, whose context ends with ctx.
// After work has returned, Run releases the Lease, unless the API server may still carry out
// a write, and returns the error of work. It returns nil if ctx ends before this process
// leads. If the Lease is lost, Run returns ErrLost without waiting for work.
func (e *Election) Run(ctx context.Context, work func(context.Context) error) error {
	electing, stop := context.WithCancel(context.WithoutCancel(ctx)) // The Lease is kept while the work ends.
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		e.elector.Run(electing)
	}()
	defer func() { stop(); <-stopped }()

	select {
	case <-ctx.Done():
		stop()
		<-stopped
		e.release(ctx)
		return nil
	case <-e.leads:
	}
	ended := make(chan error, 1)
	go func() { ended <- work(ctx) }()
	select {
	case <-stopped:
		return fmt.Errorf("%w: the Lease could not be renewed", ErrLost)
	case <-e.lock.taken:
		return fmt.Errorf("%w: another process holds the Lease", ErrLost)
	case err := <-ended:
		stop()
		<-stopped
		e.release(ctx)
		return err
	}
}

// release gives up the Lease, if it is this process's, so that the next leader need not
// wait until it expires.
func (e *Election) release(ctx context.Context) {
	logger := klog.FromContext(ctx).WithValues("lease", e.lock.Describe())
	switch {
	case !e.lock.end():
		return
	case e.lock.isInDoubt(e.config.LeaseDuration.Duration):
		logger.Info("The last writes may still be carried out: the Lease has to expire")
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.config.RetryPeriod.Duration)
	defer cancel()
	record, _, err := e.lock.Get(ctx)
	if err == nil && record.HolderIdentity == e.lock.Identity() {
		now := metav1.Now()
		err = e.lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaseDurationSeconds: 1,
			LeaderTransitions:    record.LeaderTransitions,
			AcquireTime:          now,
			RenewTime:            now,
		})
	}
	if err != nil {
		logger.Info("Could not release the Lease: it has to expire", "err", err)
		return
	}
	logger.Info("Released the Lease")
}

// Fence makes writes of clients with this config fail while this process does not lead.
func (e *Election) Fence(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return fence{e.lock, true, next} })
}

// FenceEvents is Fence for clients whose writes can arrive even after the Lease was released.
func (e *Election) FenceEvents(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return fence{e.lock, false, next} })
}

// fence is a transport that refuses writes outside of this process's term.
type fence struct {
	lock *lock
	// holdsLease says that the Lease is not released while a write is under way or in doubt.
	holdsLease bool
	next       http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (f fence) RoundTrip(request *http.Request) (*http.Response, error) {
	if isRead(request) {
		return f.next.RoundTrip(request)
	}
	if !f.lock.begin(f.holdsLease) {
		if request.Body != nil {
			request.Body.Close() //nolint:errcheck // nothing was read
		}
		return nil, errFenced
	}
	response, err := f.next.RoundTrip(request)
	if f.holdsLease {
		f.lock.answered(err != nil || leavesInDoubt(response))
	}
	return response, err
}

// isRead reports whether a request changes nothing. One that upgrades the connection, such as exec by
// WebSocket, can change anything.
func isRead(request *http.Request) bool {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return request.Header.Get("Upgrade") == "" && request.Header.Get("Sec-Websocket-Protocol") == ""
	default:
		return false
	}
}

// leavesInDoubt reports whether the API server may still carry out the write that it has
// responded to: it has given up waiting itself (504), or etcd has not answered it (500). A
// 500 that is about something else, such as a webhook, says so in its reason.
func leavesInDoubt(response *http.Response) bool {
	if response.StatusCode != http.StatusInternalServerError {
		return response.StatusCode == http.StatusGatewayTimeout
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close() //nolint:errcheck // it was read
	response.Body = io.NopCloser(bytes.NewReader(body))
	return err != nil || !bytes.Contains(body, []byte(metav1.StatusReasonInternalError))
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper, by which client-go finds the
// transport below.
func (f fence) WrappedRoundTripper() http.RoundTripper { return f.next }

// lock is a resource lock that knows whether another process can hold it.
type lock struct {
	resourcelock.Interface
	deadline time.Duration
	taken    chan struct{} // closed when another process has taken the Lease

	mu        sync.Mutex
	isReached bool // whether the Lease was read or created once
	underWay  int  // writes that have not been answered
	hasEnded  bool // whether the term has ended, and the Lease can be released

	renewed  time.Time // when the last successful renewal was sent; zero if the Lease is not ours
	isLost   bool      // whether the Lease was ours and then another process's
	doubtful time.Time // when a write last ended in doubt
}

// Get implements resourcelock.Interface. If another process holds the Lease, the term ends.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil {
		return record, raw, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isReached = true
	if record.HolderIdentity != l.Identity() {
		if !l.renewed.IsZero() && !l.isLost {
			l.isLost = true
			close(l.taken)
		}
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	sent := time.Now()
	return l.note(sent, record, l.Interface.Create(ctx, record))
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	sent := time.Now()
	return l.note(sent, record, l.Interface.Update(ctx, record))
}

// note records a successful write of the Lease: a renewal or a release.
func (l *lock) note(sent time.Time, record resourcelock.LeaderElectionRecord, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
	case record.HolderIdentity == l.Identity():
		l.isReached = true
		l.renewed = sent
	default:
		l.renewed = time.Time{} // released
	}
	return err
}

// begin reports whether a write can be sent: no other process can hold the Lease. The
// monotonic clock of some systems stands still while the machine sleeps, and the wall clock
// may be set. counts says that answered will be called.
func (l *lock) begin(counts bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hasEnded && counts || !l.isCertain() {
		return false
	}
	if counts {
		l.underWay++
	}
	return true
}

// isCertain reports whether no other process can hold the Lease. Its caller holds mu.
func (l *lock) isCertain() bool {
	now := time.Now()
	return !l.isLost && !l.renewed.IsZero() && now.Sub(l.renewed) < l.deadline && now.Round(0).Sub(l.renewed.Round(0)) < l.deadline
}

// answered notes the end of a write. It is in doubt if the API server may still carry it out.
func (l *lock) answered(isInDoubt bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.underWay--
	if isInDoubt {
		l.doubtful = time.Now()
	}
}

// end ends the term: no write can begin any more. It reports whether the Lease is certain.
func (l *lock) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hasEnded = true
	return l.isCertain()
}

// isInDoubt reports whether the API server may still carry out a write: one that has not been
// answered, or has ended in doubt within that time.
func (l *lock) isInDoubt(within time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.underWay > 0 || time.Since(l.doubtful) < within
}
