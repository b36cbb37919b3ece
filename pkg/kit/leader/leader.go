// Package leader lets one process of several work while the others are ready to.
//
// The lease is client-go's (KEP-589, k8s.io/client-go/tools/leaderelection); this
// package says what happens around it:
//
//   - A leader that is told to stop gives the lease away after its work has
//     returned, not before; a candidate sees that at once, because it watches.
//   - A leader that has lost the lease, or cannot be sure of it any longer, is told
//     at once, and must end its process. It watches its lease, and has also lost it
//     when somebody has deleted it.
//   - Until it has ended, it sends nothing to the API server: Fence stops all that is
//     sent from the moment on when the lease may be somebody else's. That moment is
//     known without asking, so it also holds for a process that was stopped and
//     continued, or a machine that was asleep.
//
// What the fence cannot do:
//
//   - It cannot call back what has been sent. Bytes in the kernel's buffer are dropped
//     about when the lease ends, where the system can do that (Linux:
//     TCP_USER_TIMEOUT), and may otherwise be sent minutes later. What a proxy or the
//     API server has accepted is carried out whenever its turn comes: after a queue of
//     priority and fairness, or a slow webhook.
//   - It goes by the clocks of its machine. Where both the wall clock and the
//     monotonic clock stand still, as in a virtual machine that is paused, or that is
//     migrated or restored from a snapshot, the process has no way to know, until its
//     next renewal or the watch tells it.
//   - It protects a lease that others respect. One that is deleted by hand is free at
//     once; until the leader has seen that, two may write.
//
// For these cases there are preconditions, by which the API server refuses a write
// that was decided for another state of its object. docs/concepts.md says which write
// has which.
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

// ErrLost is what Run returns when the lease is, or may be, somebody else's. The
// work may still be running: the process has to end.
var ErrLost = errors.New("leadership lost")

// errFenced is what a write gets that comes too late, or too early.
var errFenced = errors.New("not sent: this process does not lead, or cannot be sure that it still does")

// Client reaches the lease.
type Client struct {
	coordinationclient.CoordinationV1Interface
	// Reconnect closes the connections to the API server, so that the next request
	// gets a new one. It may be nil.
	Reconnect func()
}

// NewClient returns a client of the config that is separate from others, so that no
// number of other requests delays a renewal.
func NewClient(config *rest.Config) (Client, error) {
	config = rest.AddUserAgent(Separate(config), "leader-election")
	dialer := connrotation.NewDialer(config.Dial)
	config.Dial = dialer.DialContext
	client, err := coordinationclient.NewForConfig(config)
	return Client{client, dialer.CloseAll}, err
}

// Separate returns the config of clients that share neither connections nor rate limits
// with others, and wait for no limit but the API server's. client-go has all clients
// that connect in the same way share a single connection.
func Separate(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS, config.RateLimiter = -1, nil
	config.Dial = dialOf(config)
	return config
}

// dialOf is how clients of the config connect.
func dialOf(config *rest.Config) connrotation.DialFunc {
	if config.Dial != nil {
		return config.Dial
	}
	return (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext // as client-go's
}

// Election is one process's part in an election. It runs once.
type Election struct {
	config config.LeaderElectionConfiguration
	former string // the name of the former lease; empty if there is none
	leases coordinationclient.LeaseInterface
	lock   *lock
	clock  clock.Clock
}

// New wires a candidate and starts nothing. Fence must not be around the client.
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
			patience:  config.RenewDeadline.Duration / 2,
			reconnect: client.Reconnect,
			clock:     clock,
			lost:      make(chan struct{}),
		},
	}
	_, err = e.elector(func() {}, func(string) {})
	return e, err
}

// minMargin is the least time between the moment when a leader stops writing and the
// moment when another may begin. What was sent last has to arrive, or to be dropped,
// within it.
const minMargin = time.Second

// validate returns an error of one line if durations are not safe together. client-go
// writes whole seconds to the Lease, rounded down, and candidates go by these.
func validate(config config.LeaderElectionConfiguration) error {
	if err := validation.ValidateLeaderElectionConfiguration(&config, nil).ToAggregate(); err != nil {
		return err
	}
	lease, deadline := config.LeaseDuration.Duration, config.RenewDeadline.Duration
	switch {
	case lease%time.Second != 0:
		return fmt.Errorf("leaseDuration is %s, but has to be whole seconds: a Lease has no fractions of one, so another process would take over early", lease)
	case lease-deadline < minMargin:
		return fmt.Errorf("leaseDuration is %s and renewDeadline is %s, but has to be at least %s less: what the leader has sent last needs time to arrive", lease, deadline, minMargin)
	}
	return nil
}

// Run waits until this process leads and then does the work, whose context ends
// with ctx. It returns once the work has, after it has given the lease away, or nil
// if ctx ends before the process leads. It does not wait for the work when it
// returns ErrLost.
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

// overdue is closed when the lease has not been renewed for too long. It is so at
// once in a process that was stopped for that long, and continues.
func (e *Election) overdue(ctx context.Context) <-chan struct{} {
	overdue := make(chan struct{})
	go func() {
		for {
			left := e.lock.left()
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

// elector is client-go's part. It leads at most once.
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

// watch has the campaign try again as soon as the lease is given away, and a leader
// stop as soon as it is deleted or taken. Without it that would take up to 2.2 retry
// periods.
func (e *Election) watch(ctx context.Context, name string) {
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		changes, err := e.leases.Watch(ctx, only)
		if err != nil {
			return // The elector looks for itself, if less often.
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

// verify asks whether this process still has the lease. A watch that was begun before
// it got the lease may show the time before that.
func (e *Election) verify(ctx context.Context, name string) {
	var lease *coordinationv1.Lease
	err := e.lock.ask(ctx, func(ctx context.Context) (err error) {
		lease, err = e.leases.Get(ctx, name, metav1.GetOptions{})
		return err
	})
	switch lost := e.config.ResourceNamespace + "/" + name; {
	case apierrors.IsNotFound(err):
		e.lock.lose(deleted, lost)
	case err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") != e.lock.Identity():
		e.lock.lose(taken, lost)
	}
}

// release gives the lease away, if this process has it. If that fails, the lease
// expires.
func (e *Election) release(ctx context.Context) {
	if !e.lock.drop() {
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
		e.lock.logger.Info("Could not give the lease away: it has to expire", "err", err)
		return
	}
	e.lock.logger.Info("Gave the lease away")
}

// Fence keeps clients that are made of the config from writing while this process
// does not lead: such requests end in an error. Once it has led and may not any
// longer, nothing at all leaves their connections, so that a request which had
// passed the first check when the process was stopped gets no further.
//
// What was sent in time can still arrive after the renew deadline; the lease lasts
// longer than that by the difference of the two. Where the system can do that, it
// closes connections on which something has not arrived for so long. The package
// comment has what the fence cannot do.
func (e *Election) Fence(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return fence{e.lock, next} })
	dial := dialOf(config)
	margin := e.config.LeaseDuration.Duration - e.config.RenewDeadline.Duration
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if err := limitDelay(connection, margin); err != nil {
			return nil, errors.Join(fmt.Errorf("limiting how late something may arrive: %w", err), connection.Close())
		}
		return fencedConnection{connection, e.lock}, nil
	}
}

// Check is an error if this process should have ended because it does not lead any
// longer.
func (e *Election) Check() error {
	if e.lock.isHeld() && !e.lock.isValid() {
		return fmt.Errorf("lease %s is overdue", e.lock.Describe())
	}
	return nil
}

type fence struct {
	lock *lock
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (f fence) RoundTrip(request *http.Request) (*http.Response, error) {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
	default:
		if !f.lock.isValid() {
			if request.Body != nil {
				request.Body.Close() //nolint:errcheck // nothing was read
			}
			return nil, errFenced
		}
	}
	return f.next.RoundTrip(request)
}

// WrappedRoundTripper implements the interface by which client-go finds the
// transport below.
func (f fence) WrappedRoundTripper() http.RoundTripper { return f.next }

// fencedConnection sends nothing after the term of this process.
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

// lock is the lease as the elector sees it. It remembers until when nobody else can
// have it.
type lock struct {
	resourcelock.Interface
	valid     time.Duration // after a renewal was sent
	patience  time.Duration // with one request
	reconnect func()
	clock     clock.PassiveClock
	logger    klog.Logger

	mu       sync.Mutex
	giveUp   context.CancelFunc // ends the elector's present attempt
	claiming bool               // a request for the lease is under way
	held     bool
	renewed  time.Time // when the last successful request for the lease was sent
	said     string    // the last complaint
	lost     chan struct{}
	cause    string // of the loss
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
	l.say(ctx, err)
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

// claim sends a request for the lease.
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
	l.say(ctx, err)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.claiming = false
	if err == nil {
		l.held, l.renewed = true, sent
	}
	return err
}

// ask sends one request, and gives it up after half of the time for a renewal. A
// connection on which a request has hung is not used again, so that the second
// attempt does not share the fate of the first.
func (l *lock) ask(ctx context.Context, request func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	err := request(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil && l.reconnect != nil {
		l.reconnect()
	}
	return err
}

// say logs what is in the way of the lease, once.
func (l *lock) say(ctx context.Context, err error) {
	if ctx.Err() != nil || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != l.said {
		l.logger.Info("Cannot get the lease: trying on", "err", err, "remedy", remedy(err))
	}
	l.said = text
}

// remedy is what somebody can do about the error.
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

// attempt notes how to end the attempt that begins now.
func (l *lock) attempt(giveUp context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.giveUp = giveUp
}

// retry ends the present attempt, so that another begins, unless it is succeeding.
func (l *lock) retry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.giveUp != nil && !l.claiming && !l.held {
		l.giveUp()
	}
}

// drop notes that this process does not lead, and returns whether it did.
func (l *lock) drop() (held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held, l.held = l.held, false
	return held
}

// lose notes that this process does not lead any longer, if it did.
func (l *lock) lose(how, lease string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held {
		l.held, l.cause = false, how+" lease "+lease
		close(l.lost)
	}
}

// how says which lease was lost, and in which way.
func (l *lock) how() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// isLost is true once the lease was seen to be somebody else's, or nobody's.
func (l *lock) isLost() bool {
	select {
	case <-l.lost:
		return true
	default:
		return false
	}
}

// hasLed is true from the moment on when this process first had the lease.
func (l *lock) hasLed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.renewed.IsZero()
}

func (l *lock) isHeld() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// isValid is true as long as nobody else can have the lease.
func (l *lock) isValid() bool { return l.left() > 0 }

// left is for how long that will be so. The clock on the wall goes on while a
// machine sleeps, the monotonic one cannot be set: the earlier of the two counts.
func (l *lock) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held {
		return 0
	}
	now := l.clock.Now()
	return l.valid - max(now.Sub(l.renewed), now.Round(0).Sub(l.renewed.Round(0)))
}
