package leader

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Follow makes the election respect another lease in the same namespace: the one that
// earlier versions of the program are elected by. As long as that lease exists, a
// process leads only while it holds both, so that an old process and a new one never
// lead at the same time, whichever of them is started first. The former lease is never
// created; once somebody has deleted it, it no longer counts. Call Follow before Run.
func (e *Election) Follow(name string, client Client) {
	e.former = &succession{
		Interface: e.lock.Interface,
		name:      name,
		former: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.config.ResourceNamespace, Name: name},
			Client:     client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.lock.Identity()},
		},
	}
	e.lock.Interface = e.former
}

// leaseNames returns the names of the leases whose changes matter to the election.
func (e *Election) leaseNames() []string {
	if e.former == nil {
		return []string{e.config.ResourceName}
	}
	return []string{e.former.name, e.config.ResourceName}
}

// isOptional reports whether this process may lead while there is no such lease: it is
// the former one, and this process has never held it.
func (e *Election) isOptional(name string) bool {
	return e.former != nil && e.former.name == name && !e.former.tookBoth.Load()
}

// twoHolders is the holder of a record when each lease has another one.
const twoHolders = "unknown"

// succession presents two leases to the elector as one: its own, which it embeds, and
// the former one. It differs from client-go's deprecated MultiLock in two ways: the former
// lease may be missing, and is then not created; and a process that got only one of the two
// recovers. The elector calls one method at a time.
type succession struct {
	resourcelock.Interface
	name   string // of the former lease
	former resourcelock.Interface

	hasFormer bool        // at the last Get that could tell
	hasOwn    bool        // at the last Get that could tell
	tookBoth  atomic.Bool // this process has held both
}

// Get implements resourcelock.Interface. The record names a holder unless both leases
// are free, and it changes whenever either lease does, so that it expires only when
// both have.
func (s *succession) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	var own *resourcelock.LeaderElectionRecord
	var rawOwn []byte
	var ownErr error
	var reading sync.WaitGroup // at the same time, because a renewal has little time
	reading.Go(func() { own, rawOwn, ownErr = s.Interface.Get(ctx) })
	former, rawFormer, err := s.former.Get(ctx)
	reading.Wait()
	switch {
	case apierrors.IsNotFound(err) && !s.tookBoth.Load():
		s.hasFormer = false
		return own, rawOwn, ownErr
	case err != nil: // among these, that a lease which this process held has been deleted
		return nil, nil, err
	}
	s.hasFormer = true
	switch {
	case apierrors.IsNotFound(ownErr):
		s.hasOwn = false
		return former, rawFormer, nil
	case ownErr != nil:
		return nil, nil, ownErr
	}
	s.hasOwn = true
	raw := slices.Concat(rawFormer, rawOwn)
	switch {
	case former.HolderIdentity == "":
		return own, raw, nil
	case own.HolderIdentity == "" || own.HolderIdentity == former.HolderIdentity:
		return former, raw, nil
	default:
		both := *former
		both.HolderIdentity = twoHolders
		both.LeaseDurationSeconds = max(former.LeaseDurationSeconds, own.LeaseDurationSeconds)
		return &both, raw, nil
	}
}

// Update implements resourcelock.Interface. Everybody takes the former lease first and
// releases it last; each update fails if the lease has changed since Get.
func (s *succession) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	switch {
	case !s.hasFormer:
		return s.Interface.Update(ctx, record)
	case record.HolderIdentity == "":
		if err := s.updateOwn(ctx, record); err != nil {
			return err
		}
		return s.former.Update(ctx, record)
	}
	if err := s.former.Update(ctx, record); err != nil {
		return err
	}
	if err := s.updateOwn(ctx, record); err != nil {
		return err
	}
	s.tookBoth.Store(true)
	return nil
}

// updateOwn creates the lease if the last Get did not find it.
func (s *succession) updateOwn(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if s.hasOwn {
		return s.Interface.Update(ctx, record)
	}
	err := s.Create(ctx, record)
	s.hasOwn = err == nil
	return err
}
