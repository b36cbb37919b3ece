package icecream

import (
	"encoding/json"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/apply"
	"nicoleh.io/k8s-controller/pkg/kit/backoff"
)

// Memory is what one process remembers of one Icecream from sync to sync. A
// process that has just begun remembers nothing, which is the zero value. It decides the
// same, but it may repeat a request whose answer it would have known, and its clocks
// start from zero.
//
// All times are those of this process: the clocks of nodes and of the API server
// may be ahead or behind.
type Memory struct {
	Generation int64     // that of the spec that has the problem
	Problem    Problem   // the last one that was seen; the zero value if there was none
	Since      time.Time // when it was first seen; zero if that was before this process began
	Gone       time.Time // since when it is no longer seen; zero while it is
	Complete   time.Time // since when nothing was left to do for anybody; zero while something is

	Write    Write // the last one of the Deployment of the name asked for
	Deletion Write // the last one of Deployments of former names
	// Deleted are the UIDs of Deployments that have been deleted, until the cache
	// shows that.
	Deleted []types.UID

	// Outdated is a version of the Icecream that has changed, as the API server
	// has said. Nothing needs to be decided about it before OutdatedUntil, by which the
	// cache has had all the time that it needs.
	Outdated      string
	OutdatedUntil time.Time
}

// IsOutdated reports whether a cache is known to show the past: a version of the
// Icecream that has changed, or a Deployment that was deleted for it.
func (o Observed) IsOutdated() bool {
	return o.Icecream.ResourceVersion == o.Memory.Outdated && o.Now.Before(o.Memory.OutdatedUntil) ||
		slices.ContainsFunc(o.Owned, func(d *appsv1.Deployment) bool {
			return d.DeletionTimestamp == nil && slices.Contains(o.Memory.Deleted, d.UID)
		})
}

// WithOutdated returns the memory with what a conflict says about the Icecream's
// version.
func (m Memory) WithOutdated(o Observed) Memory {
	m.Outdated, m.OutdatedUntil = o.Icecream.ResourceVersion, o.Now.Add(time.Minute)
	return m
}

// Write is the last write of its kind for an Icecream, and what came of it.
type Write struct {
	Want  string    // what was requested, as a fingerprint; empty before the first write
	At    time.Time // when the answer came
	Count int       // how often in a row the same was requested

	// UID and Drift say what the API server stored: in which object, and as a
	// fingerprint what it stored otherwise than requested.
	UID   types.UID
	Drift string
	// Contest says who had changed what before the write repaired it.
	Contest string

	// Reason and Message say why the API server refused the write; empty if it did
	// not.
	Reason, Message string
}

// How long this controller waits before it repeats a write that was refused. If somebody
// undoes what it writes, pkg/kit/backoff says how long it waits.
const (
	// What the API server refuses may be allowed later by a quota, a policy or a
	// webhook, whose changes this controller does not see.
	firstRetry, slowestRetry = time.Second, time.Minute
	// What the API server calls invalid becomes valid by an edit of the
	// Icecream, which is seen at once, or of an admission policy.
	retryInvalid = 5 * time.Minute
)

// delay returns how long after the write the same may be requested again.
func (w Write) delay() time.Duration {
	switch {
	case w.Reason == v1alpha1.ReasonInvalidSpec:
		return retryInvalid
	case w.Reason != "":
		return backoff.Doubled(firstRetry, w.Count-1, slowestRetry)
	default:
		return backoff.Delay(w.Count)
	}
}

// wait returns how long it is from now until the same may be requested again.
func (w Write) wait(now time.Time) time.Duration {
	delay := w.delay()
	return min(delay, max(0, w.At.Add(delay).Sub(now)))
}

// isContested reports whether somebody has undone this write so often that the
// next repair may well not be the last.
func (w Write) isContested(now time.Time) bool {
	return w.Reason == "" && w.Count > backoff.Free && w.wait(now) > 0
}

// accepts reports whether the API server has stored the child with just this drift when
// it was requested to store the same: requesting it again would change nothing.
func (w Write) accepts(child apply.Child) bool {
	return w.Drift != "" && w.UID == child.UID && w.Drift == fingerprintOf(child.Drift) && w.Want == wantOf(child)
}

// Remember returns what is known after the decision has been carried out. Its Memory is
// for the next sync, which should come after requeueAfter even if nothing changes; zero
// if it need not.
func Remember(a Assessment, d Decision, out Outcome) (now Assessment, requeueAfter time.Duration) {
	now, requeueAfter = a.after(out), d.RequeueAfter
	if d.Verdict == Act {
		requeueAfter = minRequeue(requeueAfter, remember(&now, a, d, out))
	}
	now.Memory = now.memory
	return now, requeueAfter
}

// remember adds what was written to the memory of now, and returns after what delay
// to look again because of that; zero if an event will follow.
func remember(now *Assessment, before Assessment, d Decision, out Outcome) (requeueAfter time.Duration) {
	m := &now.memory
	m.Deleted = append(slices.Clone(m.Deleted), out.Deleted...)
	last := lastOf(m, d)
	former := *last
	*last = Write{Want: d.want(), At: now.Now, Count: 1, Contest: d.contest(before.Named)}
	if out.Err != nil {
		last.Reason, last.Message = refusal(out.Err)
	}
	isSame := former.Want == last.Want && (former.Reason == "") == (last.Reason == "")
	if isSame && now.Now.Sub(former.At) < backoff.ForgetAfter {
		last.Count += former.Count
	}
	if written := out.deployment(); written != nil {
		last.UID = written.UID
		if now.storedDrift = now.child(written).Drift; len(now.storedDrift) > 0 {
			last.Drift = fingerprintOf(now.storedDrift)
		}
		if before.Named != nil && before.Named.ResourceVersion == written.ResourceVersion {
			requeueAfter = atOnce // no event will follow
		}
	}
	if out.Err != nil {
		requeueAfter = minRequeue(requeueAfter, last.delay())
	}
	return requeueAfter
}

// lastOf returns the last write of the decision's kind.
func lastOf(m *Memory, d Decision) *Write {
	if len(d.Children) > 0 {
		return &m.Write
	}
	return &m.Deletion
}

// atOnce is the shortest delay; zero would mean none.
const atOnce = time.Millisecond

// refusal returns what a condition says about a refused write.
func refusal(err error) (reason, message string) {
	if apierrors.IsInvalid(err) {
		return v1alpha1.ReasonInvalidSpec, err.Error()
	}
	return v1alpha1.ReasonDeploymentRefused, err.Error()
}

// notice returns the memory with what is seen now.
func (a Assessment) notice() Memory {
	m := a.Memory
	if m.Generation != a.Icecream.Generation {
		m = recall(a.Icecream, a.Now)
		m.Write, m.Deletion, m.Deleted = a.Memory.Write, a.Memory.Deletion, a.Memory.Deleted
	}
	m.Deleted = slices.DeleteFunc(slices.Clone(m.Deleted), func(uid types.UID) bool {
		return !slices.ContainsFunc(a.Owned, func(d *appsv1.Deployment) bool { return d.UID == uid })
	})
	switch {
	case !a.isComplete:
		m.Complete = time.Time{}
	case m.Complete.IsZero():
		m.Complete = a.Now
	}

	seen := a.findProblem()
	switch {
	case m.Problem.isSameAs(seen):
		m.Problem, m.Gone = seen, time.Time{}
	case m.lingers(seen, a.Now, a.StallAfter):
		if m.Gone.IsZero() {
			m.Gone = a.Now
		}
	default:
		m.Problem, m.Since, m.Gone = seen, a.Now, time.Time{}
	}
	return m
}

// recall returns what a process that has just begun learns from the status: a problem
// by which the Icecream was Stalled has lasted long enough.
func recall(ice *v1alpha1.Icecream, now time.Time) Memory {
	m := Memory{Generation: ice.Generation, Since: now}
	ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status == metav1.ConditionTrue || ready.ObservedGeneration != ice.Generation || !isWarning(ready.Reason) {
		return m
	}
	m.Problem = Problem{Reason: ready.Reason, Message: ready.Message}
	if meta.IsStatusConditionTrue(ice.Status.Conditions, v1alpha1.ConditionStalled) {
		m.Since = time.Time{}
	}
	return m
}

// lingers reports whether the remembered problem may only seem to be over. A
// container that crashes runs well for a moment in each round.
func (m Memory) lingers(seen Problem, now time.Time, settle time.Duration) bool {
	if m.Problem.Reason != v1alpha1.ReasonCrashLoopBackOff || seen.isLoud() {
		return false
	}
	return now.Before(m.settledAt(now).Add(settle))
}

// settledAt returns since when the Icecream has been well after a crash.
func (m Memory) settledAt(now time.Time) time.Time {
	switch {
	case !m.Complete.IsZero():
		return m.Complete
	case !m.Gone.IsZero():
		return m.Gone
	default:
		return now
	}
}

// fingerprintOf returns a hash of a value's JSON, to compare it with others of its type.
func fingerprintOf(value any) string {
	raw, _ := json.Marshal(value) // plain structs of known types
	return shortHash(raw)
}
