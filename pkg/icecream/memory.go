package icecream

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/backoff"
	"nicoleh.io/k8s-controller/pkg/kit/children"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
)

// Memory is what one process remembers of one Icecream from sync to sync. A
// process that has just begun remembers nothing, which is the zero value. It decides the
// same, but it may repeat a request whose answer it would have known, and its clocks
// start from zero.
//
// All times are those of this process: the clocks of nodes and of the API server
// may be ahead or behind.
type Memory struct {
	kstatus.History // of what kept it from becoming Ready

	Write    children.Write // the last one of the Deployment of the name asked for
	Deletion children.Write // the last one of Deployments of former names
	// Deleted are the UIDs of Deployments that have been deleted, until the cache
	// shows that.
	Deleted []types.UID

	// Outdated is the version of the Icecream for which a conflict was the answer.
	Outdated children.Outdated
}

// atRest is what there is to remember of most Icecreams: a tenth of a Memory.
type atRest struct {
	generation int64
	complete   time.Time
	match      children.Match
}

// Compact returns the memory in the form in which to keep it; see [MemoryOf].
func (m Memory) Compact() any {
	rest := atRest{m.Generation, m.Complete, m.Write.Match}
	if full := rest.memory(); len(m.Deleted) == 0 && m.History == full.History && m.Write == full.Write && m.Deletion == full.Deletion && m.Outdated == full.Outdated {
		return rest
	}
	return m
}

// MemoryOf returns the memory that was kept in that form. Of nil, that is one of nothing.
func MemoryOf(kept any) Memory {
	switch kept := kept.(type) {
	case Memory:
		return kept
	case atRest:
		return kept.memory()
	default:
		return Memory{}
	}
}

func (r atRest) memory() Memory {
	return Memory{History: kstatus.History{Generation: r.generation, Complete: r.complete}, Write: children.Write{Match: r.match}}
}

// IsOutdated reports whether a cache is known to show the past: a version of the
// Icecream that has changed, or a Deployment that was deleted for it.
func (o Observed) IsOutdated() bool {
	return o.Memory.Outdated.Is(o.Icecream, o.Now) ||
		slices.ContainsFunc(o.Owned, func(d *appsv1.Deployment) bool {
			return d.DeletionTimestamp == nil && slices.Contains(o.Memory.Deleted, d.UID)
		})
}

// Remember returns what is known after the decision has been carried out. Its Memory is
// for the next sync, which should come after requeueAfter even if nothing changes; zero
// if it need not.
func Remember(a Assessment, d Decision, out Outcome) (now Assessment, requeueAfter time.Duration) {
	now, requeueAfter = a.after(out), d.RequeueAfter
	switch d.Verdict {
	case children.Act:
		requeueAfter = backoff.MinRequeue(requeueAfter, remember(&now, a, d, out))
	case children.Converged:
		now.memory.Write.Match = d.Match
	default:
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
	*last, requeueAfter = rules.Remember(*last, d, out, before.live(), now.Now)
	return requeueAfter
}

// lastOf returns the last write of the decision's kind.
func lastOf(m *Memory, d Decision) *children.Write {
	if len(d.Children) > 0 {
		return &m.Write
	}
	return &m.Deletion
}

// notice returns the memory with what is seen now.
func (a Assessment) notice() Memory {
	m := a.Memory
	m.Deleted = slices.DeleteFunc(slices.Clone(m.Deleted), func(uid types.UID) bool {
		return !slices.ContainsFunc(a.Owned, func(d *appsv1.Deployment) bool { return d.UID == uid })
	})
	m.History = m.Notice(kstatus.Sight{
		Now:        a.Now,
		Generation: a.Icecream.Generation,
		Conditions: a.Icecream.Status.Conditions,
		Problem:    a.findProblem(),
		IsComplete: a.isComplete,
		IsProblem:  isWarning,
		Recurring:  v1alpha1.ReasonCrashLoopBackOff,
		Settle:     a.StallAfter,
	})
	return m
}
