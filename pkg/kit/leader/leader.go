// Package leader elects one of several processes to do the work, and blocks the writes of
// one that may no longer lead.
//
// The election is client-go's (KEP-589, k8s.io/client-go/tools/leaderelection). This
// package adds the following:
//
//   - A leader that is stopping releases the lease after its work has returned, not
//     before. Candidates notice that at once, because they watch the lease.
//   - A leader that has lost the lease, or cannot be sure of it any longer, learns that at
//     once, and must end its process. It watches its lease, and has also lost it when
//     someone has deleted it.
//   - Until it has ended, it sends nothing to the API server: Fence blocks everything from
//     the moment when another process may hold the lease. A process knows that moment
//     without asking, so the fence also works after a process was stopped and continued,
//     or a machine was asleep.
//
// README.md has a diagram of these states. What the fence cannot do:
//
//   - It cannot recall what has been sent. Bytes in the kernel's buffer are dropped at
//     about the time when the lease ends, where the system supports that (Linux:
//     TCP_USER_TIMEOUT), and may otherwise be sent minutes later. A request that a proxy
//     or the API server has accepted may be carried out later, after a queue of priority
//     and fairness or a slow webhook.
//   - It relies on the clocks of its machine. If both the wall clock and the monotonic
//     clock stand still, as in a virtual machine that is paused, migrated, or restored
//     from a snapshot, the process cannot know that, until its next renewal or the watch
//     tells it.
//   - It protects a lease that others respect. A lease that someone deletes is free at
//     once; until the leader has noticed that, two processes may write.
//
// Against these cases, writes have preconditions, with which the API server refuses a
// write that was decided for another state of its object. docs/concepts.md says which
// write has which.
package leader

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/client-go/util/retry"
	"k8s.io/component-base/config"
	"k8s.io/component-base/config/validation"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// ErrLost is what Run returns if another process holds the lease, or may hold it. The work
// may still be running, so the process has to end.
var ErrLost = errors.New("leadership lost")

// errFenced is the error of a write outside of this process's term.
var errFenced = errors.New("not sent: this process does not lead, or cannot be sure that it still does")

// Client is a client for the lease.
type Client struct {
	coordinationclient.CoordinationV1Interface
	// Reconnect closes the connections to the API server, so that the next request
	// opens a new one. It may be nil.
	Reconnect func()
}

// NewClient returns a client that shares neither connections nor rate limits with others,
// so that other requests cannot delay a renewal.
func NewClient(config *rest.Config) (Client, error) {
	config = rest.AddUserAgent(Separate(config), "leader-election")
	dialer := connrotation.NewDialer(config.Dial)
	config.Dial = dialer.DialContext
	client, err := coordinationclient.NewForConfig(config)
	return Client{client, dialer.CloseAll}, err
}

// Separate returns a config for clients that share neither connections nor rate limits
// with others, and have no rate limit but the API server's. (In client-go, all clients
// that connect in the same way share a single connection.)
func Separate(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS, config.RateLimiter = -1, nil
	config.Dial = dialOf(config)
	return config
}

// dialOf returns the function with which clients of the config connect.
func dialOf(config *rest.Config) connrotation.DialFunc {
	if config.Dial != nil {
		return config.Dial
	}
	return (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext // as client-go's
}

// Election is one process's part in an election. It runs once.
type Election struct {
	config config.LeaderElectionConfiguration
	former *succession // nil if earlier versions had the same lease
	leases coordinationclient.LeaseInterface
	lock   *lock
	clock  clock.Clock
}

// New wires a candidate and starts nothing. The client must not be fenced.
func New(config config.LeaderElectionConfiguration, client Client, clock clock.Clock) (*Election, error) {
	if err := validate(config); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	lease, err := resourcelock.New(config.ResourceLock, config.ResourceNamespace, config.ResourceName, nil, client,
		resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())})
	if err != nil {
		return nil, err
	}
	e := &Election{
		config: config,
		leases: client.Leases(config.ResourceNamespace),
		clock:  clock,
		lock: &lock{
			Interface: lease,
			valid:     config.RenewDeadline.Duration,
			timeout:   config.RenewDeadline.Duration / 2,
			reconnect: client.Reconnect,
			clock:     clock,
			lost:      make(chan struct{}),
		},
	}
	_, err = e.elector(func() {}, func(string) {})
	return e, err
}

// minMargin is the minimum time between the moment when a leader stops writing and the
// moment when another may begin. The leader's last requests have to arrive, or to be
// dropped, within it.
const minMargin = time.Second

// validate returns an error of one line if the durations are not safe together. client-go
// rounds the lease's duration down to whole seconds when it writes the Lease, and
// candidates use what is written.
func validate(config config.LeaderElectionConfiguration) error {
	if err := validation.ValidateLeaderElectionConfiguration(&config, nil).ToAggregate(); err != nil {
		return err
	}
	lease, deadline := config.LeaseDuration.Duration, config.RenewDeadline.Duration
	switch {
	case lease%time.Second != 0:
		return fmt.Errorf("leaseDuration is %s, but has to be whole seconds: a Lease does not hold fractions, so another process would take over early", lease)
	case lease-deadline < minMargin:
		return fmt.Errorf("leaseDuration is %s and renewDeadline is %s, but has to be at least %s less: what the leader has sent last needs time to arrive", lease, deadline, minMargin)
	}
	return nil
}

// Run waits until this process leads, and then calls work, whose context ends with ctx.
// After work has returned, Run releases the lease, unless a write has just ended without a
// response, and returns the error of work. It returns nil if ctx ends before the process
// leads. If the lease is lost, Run returns ErrLost without waiting for work.
func (e *Election) Run(ctx context.Context, work func(context.Context) error) error {
	logger := klog.FromContext(ctx).WithValues("lease", e.lock.Describe())
	e.lock.logger = logger
	// The lease is kept while the work is finishing.
	term, resign := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
	defer resign()
	elected, over := make(chan struct{}), make(chan error, 1)
	go func() { over <- e.campaign(term, sync.OnceFunc(func() { close(elected) })) }()

	select {
	case err := <-over:
		return err
	case <-ctx.Done():
		resign()
		<-over
		e.release(ctx)
		return nil
	case <-elected:
		logger.Info("Leading")
	}

	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	select {
	case err := <-done:
		resign()
		<-over
		e.release(ctx)
		return err
	case <-e.lock.lost:
		return fmt.Errorf("%w: %s", ErrLost, e.lock.how())
	case <-e.overdue(term):
		return fmt.Errorf("%w: lease %s could not be renewed for %s", ErrLost, e.lock.Describe(), e.config.RenewDeadline.Duration)
	}
}

// overdue returns a channel that is closed when the lease has not been renewed for too
// long. In a process that was stopped for that long, that happens as soon as it continues.
func (e *Election) overdue(ctx context.Context) <-chan struct{} {
	overdue := make(chan struct{})
	go func() {
		for {
			left := e.lock.validFor()
			if left <= 0 {
				close(overdue)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-e.clock.After(left):
			}
		}
	}()
	return overdue
}

// campaign tries to lead, and leads, until ctx ends or the lease is lost.
func (e *Election) campaign(ctx context.Context, elected func()) error {
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	for _, name := range e.leaseNames() {
		go e.watch(watching, name)
	}

	for ctx.Err() == nil && !e.lock.hasLed() {
		elector, err := e.elector(
			elected,
			func(leader string) {
				if leader != "" && leader != e.lock.Identity() {
					e.lock.logger.Info("Ready to lead when the leader ends", "leader", leader)
				}
			})
		if err != nil {
			return err
		}
		attempt, giveUp := context.WithCancel(ctx)
		e.lock.attempt(giveUp)
		elector.Run(attempt)
		giveUp()
	}
	return nil
}

// elector returns client-go's elector, which leads at most once.
func (e *Election) elector(elected func(), sees func(leader string)) (*leaderelection.LeaderElector, error) {
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name:          e.config.ResourceName,
		Lock:          e.lock,
		LeaseDuration: e.config.LeaseDuration.Duration,
		RenewDeadline: e.config.RenewDeadline.Duration,
		RetryPeriod:   e.config.RetryPeriod.Duration,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { elected() },
			OnStoppedLeading: func() {},
			OnNewLeader:      sees,
		},
	})
}

// watch makes the campaign try again as soon as the lease is released, and a leader stop
// as soon as it is deleted or taken. Without the watch, that would take up to 2.2 retry
// periods.
func (e *Election) watch(ctx context.Context, name string) {
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		changes, err := e.leases.Watch(ctx, only)
		if err != nil {
			return // The elector still notices, though later.
		}
		defer context.AfterFunc(ctx, changes.Stop)()
		for change := range changes.ResultChan() {
			lease, ok := change.Object.(*coordinationv1.Lease)
			if !ok {
				continue
			}
			holder := ptr.Deref(lease.Spec.HolderIdentity, "")
			switch {
			case e.lock.isHeld():
				if change.Type == watch.Deleted || holder != e.lock.Identity() {
					e.verify(ctx, name)
				}
			case holder == "":
				e.lock.retry()
			}
		}
	}, e.config.RetryPeriod.Duration, leaderelection.JitterFactor, true)
}

// verify reads the lease to find out whether this process still holds it. It is needed
// because a watch that began before the process got the lease may show an older state.
func (e *Election) verify(ctx context.Context, name string) {
	var lease *coordinationv1.Lease
	err := e.lock.ask(ctx, func(ctx context.Context) (err error) {
		lease, err = e.leases.Get(ctx, name, metav1.GetOptions{})
		return err
	})
	switch lost := e.config.ResourceNamespace + "/" + name; {
	case apierrors.IsNotFound(err) && e.isOptional(name):
	case apierrors.IsNotFound(err):
		e.lock.lose(deleted, lost)
	case err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") != e.lock.Identity():
		e.lock.lose(taken, lost)
	}
}

// release releases the lease, if this process holds it. If that fails, or if the API server
// may still carry out a write of this process, the lease expires.
func (e *Election) release(ctx context.Context) {
	if !e.lock.drop() {
		return
	}
	if e.lock.inDoubt(e.config.LeaseDuration.Duration) {
		e.lock.logger.Info("The last writes may still be carried out: the lease has to expire")
		return
	}
	ctx, cancel := context.WithTimeout(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()), e.config.RetryPeriod.Duration)
	defer cancel()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		lease, _, err := e.lock.Interface.Get(ctx)
		if err != nil || lease.HolderIdentity != e.lock.Identity() {
			return err
		}
		lease.HolderIdentity, lease.LeaseDurationSeconds = "", 1
		return e.lock.Interface.Update(ctx, *lease)
	})
	if err != nil {
		e.lock.logger.Info("Could not release the lease: it has to expire", "err", err)
		return
	}
	e.lock.logger.Info("Released the lease")
}

// Fence makes the writes of clients with this config fail while this process does not
// lead. After its term, their connections send nothing at all, so that a request that had
// passed the first check before the process was stopped gets no further.
//
// A request that was sent in time may arrive after the renew deadline, but before the
// lease ends, which is the difference of the two later: where the system supports it, a
// connection is closed if something it sent has not arrived for that long. The package
// comment says what the fence cannot do.
func (e *Election) Fence(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return fence{e.lock.isValid, e.lock.doubt, next} })
	dial := dialOf(config)
	margin := e.config.LeaseDuration.Duration - e.config.RenewDeadline.Duration
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if err := limitDelay(connection, margin); err != nil {
			return nil, errors.Join(fmt.Errorf("limiting how late a request may arrive: %w", err), connection.Close())
		}
		return fencedConnection{connection, e.lock}, nil
	}
}

// Check returns an error if this process should have ended because it no longer leads.
func (e *Election) Check() error {
	if e.lock.isHeld() && !e.lock.isValid() {
		return fmt.Errorf("lease %s is overdue", e.lock.Describe())
	}
	return nil
}

// FenceOf returns a transport that refuses writes while holds returns false. It is the one
// that [Election.Fence] installs, for tests that have no election.
func FenceOf(holds func() bool, next http.RoundTripper) http.RoundTripper {
	return fence{isValid: holds, doubt: func() {}, next: next}
}

// fence is a transport that refuses writes outside of this process's term.
type fence struct {
	isValid func() bool
	doubt   func() // is called when a write has ended without a response
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (f fence) RoundTrip(request *http.Request) (*http.Response, error) {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return f.next.RoundTrip(request)
	}
	if !f.isValid() {
		if request.Body != nil {
			request.Body.Close() //nolint:errcheck // nothing was read
		}
		return nil, errFenced
	}
	response, err := f.next.RoundTrip(request)
	if err != nil {
		f.doubt()
	}
	return response, err
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper, with which client-go finds
// the transport below.
func (f fence) WrappedRoundTripper() http.RoundTripper { return f.next }

// fencedConnection is a connection that sends nothing after this process's term.
type fencedConnection struct {
	net.Conn
	lock *lock
}

// Write implements net.Conn.
func (c fencedConnection) Write(content []byte) (int, error) {
	if c.lock.hasLed() && !c.lock.isValid() {
		return 0, errFenced
	}
	return c.Conn.Write(content)
}

// lock is the elector's access to the lease. It knows until when no other process can
// hold the lease.
type lock struct {
	resourcelock.Interface
	valid     time.Duration // how long a renewal is valid after it was sent
	timeout   time.Duration // of one request
	reconnect func()
	clock     clock.PassiveClock
	logger    klog.Logger

	mu       sync.Mutex
	giveUp   context.CancelFunc // ends the elector's current attempt
	claiming bool               // whether a request for the lease is running
	held     bool
	renewed  time.Time // when the last successful request for the lease was sent
	doubtful time.Time // when the last write ended without a response
	logged   string    // the error that was logged last
	lost     chan struct{}
	cause    string // how the lease was lost
}

// How a lease can be lost.
const (
	taken   = "another process has taken"
	deleted = "somebody has deleted"
)

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (lease *resourcelock.LeaderElectionRecord, raw []byte, err error) {
	err = l.ask(ctx, func(ctx context.Context) error {
		lease, raw, err = l.Interface.Get(ctx)
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		l.lose(deleted, l.Describe())
		return lease, raw, err
	case err == nil && lease.HolderIdentity != l.Identity():
		l.lose(taken, l.Describe())
	}
	l.logError(ctx, err)
	return lease, raw, err
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, lease resourcelock.LeaderElectionRecord) error {
	return l.claim(ctx, func(ctx context.Context) error { return l.Interface.Create(ctx, lease) })
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, lease resourcelock.LeaderElectionRecord) error {
	return l.claim(ctx, func(ctx context.Context) error { return l.Interface.Update(ctx, lease) })
}

// claim sends a request that acquires or renews the lease.
func (l *lock) claim(ctx context.Context, request func(context.Context) error) error {
	l.mu.Lock()
	if ctx.Err() != nil || l.isLost() {
		l.mu.Unlock()
		return ErrLost
	}
	l.claiming = true
	sent := l.clock.Now()
	l.mu.Unlock()

	err := l.ask(ctx, request)
	l.logError(ctx, err)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.claiming = false
	if err == nil {
		l.held, l.renewed = true, sent
	}
	return err
}

// ask sends one request, which may take up to half of the time for a renewal. After a
// timeout, the next request gets a new connection, because the old one may hang.
func (l *lock) ask(ctx context.Context, request func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	err := request(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil && l.reconnect != nil {
		l.reconnect()
	}
	return err
}

// logError logs why the process cannot get the lease, unless the log already says so.
func (l *lock) logError(ctx context.Context, err error) {
	if ctx.Err() != nil || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != l.logged {
		l.logger.Info("Cannot get the lease; will retry", "err", err, "remedy", remedy(err))
	}
	l.logged = text
}

// remedy returns what an operator can do about the error.
func remedy(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "allow create, get, update and watch of leases in this namespace, or name another by -leader-elect-resource-namespace"
	case apierrors.IsNotFound(err):
		return "create the namespace, or name another by -leader-elect-resource-namespace"
	default:
		return "none, if it does not last"
	}
}

// attempt records how to end the attempt that begins now.
func (l *lock) attempt(giveUp context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.giveUp = giveUp
}

// retry ends the current attempt, so that another begins, unless it may be succeeding.
func (l *lock) retry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.giveUp != nil && !l.claiming && !l.held {
		l.giveUp()
	}
}

// drop records that this process no longer leads, and reports whether it did.
func (l *lock) drop() (held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held, l.held = l.held, false
	return held
}

// doubt records that a write has ended without a response, so that the API server may still
// carry it out.
func (l *lock) doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubtful = l.clock.Now()
}

// inDoubt reports whether a write has ended without a response within that time.
func (l *lock) inDoubt(period time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clock.Since(l.doubtful) < period
}

// lose records that this process has lost the lease, if it held it.
func (l *lock) lose(cause, lease string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held {
		l.held, l.cause = false, cause+" lease "+lease
		close(l.lost)
	}
}

// how returns which lease was lost, and how.
func (l *lock) how() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// isLost reports whether another process was seen to hold the lease, or it was deleted.
func (l *lock) isLost() bool {
	select {
	case <-l.lost:
		return true
	default:
		return false
	}
}

// hasLed reports whether this process has ever held the lease.
func (l *lock) hasLed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.renewed.IsZero()
}

// isHeld reports whether this process holds the lease, as far as it knows.
func (l *lock) isHeld() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// isValid reports whether it is certain that no other process holds the lease.
func (l *lock) isValid() bool { return l.validFor() > 0 }

// validFor returns how long that will remain certain. The wall clock goes on while a
// machine sleeps, and the monotonic clock cannot be set; the one that has advanced more
// counts.
func (l *lock) validFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held {
		return 0
	}
	now := l.clock.Now()
	return l.valid - max(now.Sub(l.renewed), now.Round(0).Sub(l.renewed.Round(0)))
}
