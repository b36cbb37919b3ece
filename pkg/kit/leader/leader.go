// Package leader elects one of several processes to do the work, and blocks the writes of
// one that may no longer lead.
//
// The protocol is that of client-go (KEP-589, k8s.io/client-go/tools/leaderelection), so
// processes that use either can take part in one election. This package implements it
// again for the following:
//
//   - A leader that is stopping releases the lease after its work has returned, not
//     before. Candidates notice that at once, because they watch the lease. They send no
//     requests meanwhile.
//   - A leader that has lost the lease, or cannot be sure of it any longer, learns that at
//     once, and must end its process. It watches its lease, and has also lost it when
//     someone has deleted it.
//   - Until it has ended, it sends nothing to the API server: Fence blocks everything from
//     the moment when another process may hold the lease. A process knows that moment
//     without asking, so the fence also works after a process was stopped and continued,
//     or a machine was asleep.
//
// What a process does is decided by a plain value without a clock or a client, candidate.
// README.md has a diagram of the states. What the fence cannot do:
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
	"os"
	"slices"
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
	"k8s.io/component-base/config"
	"k8s.io/component-base/config/validation"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// ErrLost is what Run returns if another process holds the lease, or may hold it. The work
// may still be running, so the process has to end.
var ErrLost = errors.New("leadership lost")

// Election is one process's part in an election. It runs once.
type Election struct {
	config    config.LeaderElectionConfiguration
	leases    []access // in the order of the candidate's
	reconnect func()
	clock     clock.Clock
	logger    klog.Logger
	logged    string // the error that was logged last, unless the Lease was reached since
	loggedOf  int    // the Lease that it was about
	seen      string // the leader that was logged last

	mu        sync.Mutex
	candidate candidate
	doubtful  time.Time // when the last write ended without a response
}

// access is how a Lease is read and written.
type access struct {
	Leases
	name   string
	object *coordinationv1.Lease // that the candidate's record is of
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
	setStatus(config.ResourceName, false)
	return &Election{
		config:    config,
		leases:    []access{{Leases: client.Leases(config.ResourceNamespace), name: config.ResourceName}},
		reconnect: client.Reconnect,
		clock:     clock,
		candidate: newCandidate(host+"_"+string(uuid.NewUUID()), config.RenewDeadline.Duration, config.RetryPeriod.Duration),
	}, nil
}

// Follow makes the election respect another lease in the same namespace: the one that
// earlier versions of the program are elected by. As long as that lease exists, a
// process leads only while it holds both, so that an old process and a new one never
// lead at the same time, whichever of them is started first. The former lease is never
// created; once somebody has deleted it, it no longer counts. Call Follow before Run.
func (e *Election) Follow(name string, client Client) {
	e.leases = slices.Insert(e.leases, 0, access{Leases: client.Leases(e.config.ResourceNamespace), name: name})
	e.candidate.follow()
}

// jitterFactor is by how much a candidate's pause may be longer than the retry period, so
// that several do not go on in step. A leader that renews its lease is alone.
const jitterFactor = 1.2

// minMargin is the minimum time between the moment when a leader stops writing and the
// moment when another may begin. The leader's last requests have to arrive, or to be
// dropped, within it.
const minMargin = time.Second

// validate returns an error of one line if the durations are not safe together. A Lease
// holds whole seconds, and candidates use what is written there.
func validate(config config.LeaderElectionConfiguration) error {
	lease, deadline, retry := config.LeaseDuration.Duration, config.RenewDeadline.Duration, config.RetryPeriod.Duration
	switch {
	case config.ResourceLock != "leases":
		return fmt.Errorf("resourceLock is %q, but has to be leases", config.ResourceLock)
	case lease%time.Second != 0:
		return fmt.Errorf("leaseDuration is %s, but has to be whole seconds: a Lease does not hold fractions, so another process would take over early", lease)
	case lease-deadline < minMargin:
		return fmt.Errorf("leaseDuration is %s and renewDeadline is %s, but has to be at least %s less: what the leader has sent last needs time to arrive", lease, deadline, minMargin)
	case float64(deadline) <= jitterFactor*float64(retry):
		return fmt.Errorf("renewDeadline is %s, but has to be more than %g times the retryPeriod, %s", deadline, jitterFactor, retry)
	}
	return validation.ValidateLeaderElectionConfiguration(&config, nil).ToAggregate()
}

// Run waits until this process leads, and then calls work, whose context ends with ctx.
// After work has returned, Run releases the lease, unless a write has just ended without a
// response, and returns the error of work. It returns nil if ctx ends before the process
// leads. If the lease is lost, Run returns ErrLost without waiting for work.
func (e *Election) Run(ctx context.Context, work func(context.Context) error) (err error) {
	e.logger = klog.FromContext(ctx).WithValues("lease", e.describe(len(e.leases)-1))
	// The lease is kept while the work is finishing.
	keeping, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
	defer cancel()
	defer setStatus(e.config.ResourceName, false)
	events := make(chan event)
	for i := range e.leases {
		go e.watch(keeping, i, events)
	}

	stopped := ctx.Done()
	var returned chan error      // by work, once it has begun
	var tooLate <-chan time.Time // to release the lease, once work has returned
	for {
		now := e.clock.Now()
		s, phase := e.next(now)
		switch s.do {
		case lose:
			return e.lostError()
		case end:
			if e.candidate.released {
				e.logger.Info("Released the lease")
			}
			return err
		case waitUntil:
		case read, create, update, release:
			lease := e.write(s)
			go func() { report(keeping, events, e.send(keeping, s, lease)) }()
		}
		if phase == leading && returned == nil {
			e.logger.Info("Leading")
			setStatus(e.config.ResourceName, true)
			returned = make(chan error, 1)
			go func() { returned <- work(ctx) }()
		}
		if phase == ending && tooLate == nil {
			tooLate = e.clock.After(e.config.RetryPeriod.Duration)
		}
		var wake <-chan time.Time
		if !s.until.IsZero() {
			wake = e.clock.After(s.until.Sub(now))
		}

		select {
		case happened := <-events:
			e.apply(happened)
		case <-wake:
		case <-stopped:
			stopped = nil
			e.apply(func(time.Time, time.Duration) { e.candidate.stop() })
		case err = <-returned:
			mayRelease := !e.inDoubt()
			if !mayRelease {
				e.logger.Info("The last writes may still be carried out: the lease has to expire")
			}
			e.apply(func(time.Time, time.Duration) { e.candidate.finish(mayRelease) })
		case <-tooLate:
			e.logger.Info("Could not release the lease: it has to expire", "err", "no response in time")
			return err
		}
	}
}

// event is something that has happened. It is called with the time, and with how long to
// wait after a failure.
type event func(now time.Time, pause time.Duration)

// report reports an event to Run.
func report(ctx context.Context, events chan<- event, happened event) {
	select {
	case events <- happened:
	case <-ctx.Done():
	}
}

// apply lets the candidate know what has happened.
func (e *Election) apply(happened event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	pause := e.config.RetryPeriod.Duration
	if e.candidate.phase != leading {
		pause = wait.Jitter(pause, jitterFactor)
	}
	happened(e.clock.Now(), pause)
	if leader := e.candidate.waitsFor(); e.candidate.phase == standby && leader != "" && leader != e.seen {
		e.seen = leader
		e.logger.Info("Ready to lead when the leader ends", "leader", leader)
	}
}

// next returns the candidate's next step, and how far it is.
func (e *Election) next(now time.Time) (step, phase) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.candidate.next(now)
	return s, e.candidate.phase
}

// watch reports how a lease changes, so that a candidate tries to get it as soon as it is
// released, and a leader stops as soon as it is deleted or taken.
func (e *Election) watch(ctx context.Context, index int, events chan<- event) {
	leases, name := e.leases[index].Leases, e.leases[index].name
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		changes, err := leases.Watch(ctx, only)
		if err != nil {
			return // The candidate reads the lease meanwhile.
		}
		defer context.AfterFunc(ctx, changes.Stop)()
		report(ctx, events, func(now time.Time, pause time.Duration) { e.candidate.watches(index, true, now, pause) })
		for change := range changes.ResultChan() {
			lease, ok := change.Object.(*coordinationv1.Lease)
			if !ok || lease.Name != name { // client-go's fake ignores the selector
				continue
			}
			if change.Type == watch.Deleted {
				lease = nil
			}
			report(ctx, events, func(now time.Time, pause time.Duration) {
				e.candidate.saw(index, recordOf(lease), now, pause)
				e.keep(index, lease)
			})
		}
		report(ctx, events, func(now time.Time, pause time.Duration) { e.candidate.watches(index, false, now, pause) })
	}, e.config.RetryPeriod.Duration, jitterFactor, true)
}

// send sends a request, and returns how it has ended. It may take up to half of the time for
// a renewal. After a timeout, the next request gets a new connection, because the old one
// may hang.
func (e *Election) send(ctx context.Context, s step, lease *coordinationv1.Lease) event {
	limited, cancel := context.WithTimeout(ctx, e.config.RenewDeadline.Duration/2)
	defer cancel()
	leases, name := e.leases[s.lease].Leases, e.leases[s.lease].name
	var err error
	switch s.do {
	case create:
		lease, err = leases.Create(limited, lease, metav1.CreateOptions{})
	case update, release:
		lease, err = leases.Update(limited, lease, metav1.UpdateOptions{})
	default:
		lease, err = leases.Get(limited, name, metav1.GetOptions{})
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil && e.reconnect != nil {
		e.reconnect()
	}
	if err != nil {
		lease = nil
	}
	return func(now time.Time, pause time.Duration) {
		how := outcomeOf(s.do, err)
		e.logOutcome(s.lease, how, err)
		e.candidate.answered(now, how, recordOf(lease), pause)
		e.keep(s.lease, lease)
	}
}

// outcomeOf returns what the error of a request means.
func outcomeOf(do action, err error) outcome {
	switch {
	case err == nil, do == read && apierrors.IsNotFound(err):
		return done
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), do != create && apierrors.IsNotFound(err):
		return refused
	default:
		return failed
	}
}

// keep keeps a Lease if it is the one that the candidate knows.
func (e *Election) keep(index int, lease *coordinationv1.Lease) {
	if recordOf(lease) == e.candidate.leases[index].record {
		e.leases[index].object = lease
	}
}

// recordOf returns what a Lease says. It is nil if there is none.
func recordOf(lease *coordinationv1.Lease) record {
	if lease == nil {
		return record{}
	}
	return record{
		exists:   true,
		version:  lease.ResourceVersion,
		holder:   ptr.Deref(lease.Spec.HolderIdentity, ""),
		duration: time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second,
		renewed:  ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time,
	}
}

// write returns the Lease that a step writes; nil if that is none. Its fields are those of
// client-go, so that processes that use it can take part.
func (e *Election) write(s step) *coordinationv1.Lease {
	var lease *coordinationv1.Lease
	now := metav1.NewMicroTime(s.sent)
	acquired, transitions := now, int32(0)
	switch s.do {
	case create:
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.config.ResourceNamespace, Name: e.leases[s.lease].name}}
	case update, release:
		lease = e.leases[s.lease].object.DeepCopy() // with its UID, so that it is not created again
		lease.ResourceVersion = s.version
		transitions = ptr.Deref(lease.Spec.LeaseTransitions, 0)
		if ptr.Deref(lease.Spec.HolderIdentity, "") == e.candidate.identity {
			acquired = ptr.Deref(lease.Spec.AcquireTime, now)
		} else {
			transitions++
		}
	default:
		return nil
	}
	holder, duration := e.candidate.identity, int32(e.config.LeaseDuration.Seconds())
	if s.do == release {
		holder, duration = "", 1
	}
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &duration, AcquireTime: &acquired, RenewTime: &now, LeaseTransitions: &transitions}
	return lease
}

// logOutcome logs why the process cannot get or release a Lease, unless the log already
// says so, or why it cannot get another one.
func (e *Election) logOutcome(lease int, how outcome, err error) {
	switch {
	case how == refused:
	case how == failed && e.candidate.phase == ending:
		e.logger.Info("Could not release the lease: it has to expire", "err", err)
	case e.logged != "" && lease != e.loggedOf:
	case how == done:
		e.logged = ""
	case err.Error() != e.logged:
		e.logged, e.loggedOf = err.Error(), lease
		e.logger.Info("Cannot get the lease; will retry", "err", err, "remedy", remedy(err))
	}
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

// lostError returns how this process has lost the lease.
func (e *Election) lostError() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.candidate; c.phase == lost {
		return fmt.Errorf("%w: %s lease %s", ErrLost, c.lost.how, e.describe(c.lost.lease))
	}
	return fmt.Errorf("%w: lease %s could not be renewed for %s", ErrLost, e.describe(len(e.leases)-1), e.config.RenewDeadline.Duration)
}

// describe returns the namespace and the name of a lease.
func (e *Election) describe(index int) string {
	return e.config.ResourceNamespace + "/" + e.leases[index].name
}

// Check returns an error if this process should have ended because it no longer leads.
func (e *Election) Check() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.candidate.phase; p == lost || p == leading && e.candidate.validFor(e.clock.Now()) <= 0 {
		return fmt.Errorf("lease %s is overdue", e.describe(len(e.leases)-1))
	}
	return nil
}

var status = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Name:           "leader_election_master_status",
	StabilityLevel: metrics.ALPHA,
	Help:           "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
}, []string{"name"})

var register = sync.OnceFunc(func() { legacyregistry.MustRegister(status) })

// setStatus sets the metric that client-go's election has as well.
func setStatus(name string, isLeading bool) {
	register()
	value := 0.0
	if isLeading {
		value = 1
	}
	status.WithLabelValues(name).Set(value)
}
