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
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/backoff"
)

// Memory is what one process remembers of one Icecream from sync to sync. A
// process that has none, because it has just begun, decides the same; it may
// make a request again whose answer it would have known, and its clocks begin
// anew. The zero Memory remembers nothing.
//
// All times are those of this process: the clocks of nodes and of the API server
// may be ahead or behind.
type Memory struct {
	Generation int64     // of the spec that the problem is one of
	Problem    Problem   // the last one that was seen; the zero value when there was none
	Since      time.Time // when it was first seen; zero if that was before this process began
	Gone       time.Time // since when it is no longer seen; zero while it is
	Complete   time.Time // since when nothing was left to do for anybody; zero while something is

	Write   Write // of the Deployment of the name asked for
	Removal Write // of Deployments of former names
	// Removed are the UIDs of Deployments that have been deleted, until the cache
	// shows that.
	Removed []types.UID

	// Outdated is a version of the Icecream that has changed, as the API server
	// has said; nothing need be decided about it until then, when the cache has
	// had all the time that it needs.
	Outdated      string
	OutdatedUntil time.Time
}

// IsOutdated reports whether a cache is known to show the past: a version of the
// Icecream that has changed, or a Deployment that was deleted for it.
func (o Observed) IsOutdated() bool {
	return o.Icecream.ResourceVersion == o.Memory.Outdated && o.Now.Before(o.Memory.OutdatedUntil) ||
		slices.ContainsFunc(o.Owned, func(d *appsv1.Deployment) bool {
			return d.DeletionTimestamp == nil && slices.Contains(o.Memory.Removed, d.UID)
		})
}

// WithOutdated is the memory with what a conflict says about the Icecream's version.
func (m Memory) WithOutdated(o Observed) Memory {
	m.Outdated, m.OutdatedUntil = o.Icecream.ResourceVersion, o.Now.Add(time.Minute)
	return m
}

// Write is the last write of its kind for an Icecream, and what came of it.
type Write struct {
	Want  string    // what was requested, as a fingerprint; empty before the first write
	At    time.Time // when it was answered
	Count int       // how often in a row the same was requested

	// UID and Drift say what the API server stored: in which object, and as a
	// fingerprint what it stored otherwise than requested.
	UID   types.UID
	Drift string
	// Contest says who had changed what before the write set it right.
	Contest string

	// Reason and Message say why the API server refused the write; empty when
	// it did not.
	Reason, Message string
}

// How patient this controller is with its counterparts. With those who undo what it
// writes, it is as patient as pkg/kit/backoff says.
const (
	// What the API server refuses may be allowed later by a quota, a policy or a
	// webhook, whose changes this controller does not see.
	firstRetry, slowestRetry = time.Second, time.Minute
	// What the API server calls invalid becomes valid by an edit of the
	// Icecream, which is seen at once, or of an admission policy.
	retryInvalid = 5 * time.Minute
)

// delay is how long after the write the same may be requested again.
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

// wait is how long it is at now until the same may be requested again.
func (w Write) wait(now time.Time) time.Duration {
	delay := w.delay()
	return min(delay, max(0, w.At.Add(delay).Sub(now)))
}

// isContested reports whether somebody has undone this write so often that the
// next repair may well not be the last.
func (w Write) isContested(now time.Time) bool {
	return w.Reason == "" && w.Count > backoff.Free && w.wait(now) > 0
}

// accepts reports whether the API server has stored the Deployment of that UID
// with just this drift when it was requested to store want: requesting it again
// would change nothing.
func (w Write) accepts(want *appsv1ac.DeploymentApplyConfiguration, uid types.UID, drift []Difference) bool {
	return w.Drift != "" && w.UID == uid && w.Drift == fingerprintOf(drift) && w.Want == fingerprintOf(want)
}

// Remember is what is known after the decision has been carried out. Its Memory is
// for the next sync, which should come after again even if nothing changes; zero if
// it need not.
func Remember(a Assessment, d Decision, out Outcome) (now Assessment, again time.Duration) {
	now, again = a.after(out), d.Again
	if d.Verdict == Act {
		again = soonest(again, remember(&now, a, d, out))
	}
	now.Memory = now.memory
	return now, again
}

// remember adds what was written to the memory of now, and returns after what delay
// to look again because of that; zero if an event will follow.
func remember(now *Assessment, before Assessment, d Decision, out Outcome) (again time.Duration) {
	m := &now.memory
	m.Removed = append(slices.Clone(m.Removed), out.Removed...)
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
	if written := out.Deployment; written != nil {
		last.UID = written.UID
		if now.left, _ = driftOf(written, desired(now.Icecream), now.Icecream.Spec.Resources); len(now.left) > 0 {
			last.Drift = fingerprintOf(now.left)
		}
		if before.Named != nil && before.Named.ResourceVersion == written.ResourceVersion {
			again = atOnce // no event will follow
		}
	}
	if out.Err != nil {
		again = soonest(again, last.delay())
	}
	return again
}

// lastOf is the last write of the decision's kind.
func lastOf(m *Memory, d Decision) *Write {
	if d.Apply != nil {
		return &m.Write
	}
	return &m.Removal
}

// atOnce is a delay that is not none.
const atOnce = time.Millisecond

// refusal is what a condition says about a refused write.
func refusal(err error) (reason, message string) {
	if apierrors.IsInvalid(err) {
		return v1alpha1.ReasonInvalidSpec, err.Error()
	}
	return v1alpha1.ReasonDeploymentRefused, err.Error()
}

// notice is the memory with what is seen now.
func (a Assessment) notice() Memory {
	m := a.Memory
	if m.Generation != a.Icecream.Generation {
		m = recall(a.Icecream, a.Now)
		m.Write, m.Removal, m.Removed = a.Memory.Write, a.Memory.Removal, a.Memory.Removed
	}
	m.Removed = slices.DeleteFunc(slices.Clone(m.Removed), func(uid types.UID) bool {
		return !slices.ContainsFunc(a.Owned, func(d *appsv1.Deployment) bool { return d.UID == uid })
	})
	switch {
	case !a.isComplete:
		m.Complete = time.Time{}
	case m.Complete.IsZero():
		m.Complete = a.Now
	}

	seen := a.problem()
	switch {
	case m.Problem.isOneWith(seen):
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

// recall is what a process that has just begun learns from the status: a problem
// that the Icecream was stalled by has lasted long enough.
func recall(ice *v1alpha1.Icecream, now time.Time) Memory {
	m := Memory{Generation: ice.Generation, Since: now}
	ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status == metav1.ConditionTrue || ready.ObservedGeneration != ice.Generation || !isTrouble(ready.Reason) {
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

// settledAt is since when the Icecream has been well after a crash.
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

// fingerprintOf tells values of one type from each other by their JSON.
func fingerprintOf(value any) string {
	raw, _ := json.Marshal(value) // plain structs of known types
	return shortHash(raw)
}
