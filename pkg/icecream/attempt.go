package icecream

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/backoff"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
)

// Memory is what one process remembers of one Icecream from sync to sync. The zero value is
// what a process that has just started remembers. A lost memory repeats a request and
// nothing worse. All times are those of this process: the clocks of nodes and of the API
// server can be ahead or behind.
type Memory struct {
	kstatus.History         // since when the present problem lasts
	Seen            Seen    // what the status of the Deployment of the name asked for was about last
	Write           Attempt // the last write of the Deployment of the name asked for
	Old             Attempt // the last write or deletion of Deployments of former names
}

// Seen is the last generation of a Deployment that its status was about, and a fingerprint
// of its spec.
type Seen struct {
	UID        types.UID
	Generation int64
	Spec       string
}

// Attempt is the last write of its kind and what the API server made of it.
type Attempt struct {
	Want  string    // a fingerprint of what was requested; empty before the first write
	At    time.Time // when the answer came
	Count int       // how often in a row the same was requested with such an answer

	// Stored is a fingerprint of what the API server stored otherwise than requested, as
	// admission policies and webhooks make it do. To request it again would change nothing.
	Stored string
	// Refusal is why the API server refused the write; the zero value if it did not.
	Refusal kstatus.Conclusion
	// Contest says who had undone what before this write repaired it, once that happens
	// again and again.
	Contest string
}

// What the API server refuses can be allowed later by a quota, a policy or a webhook, whose
// changes the controller does not see. What it calls invalid becomes valid by an edit of the
// Icecream, which is seen at once, or of an admission policy.
const (
	firstRetry, slowestRetry = time.Second, time.Minute
	retryInvalid             = 5 * time.Minute
)

// refusalOf returns what to report of a write that the API server refused.
func refusalOf(err error) kstatus.Conclusion {
	switch {
	case apierrors.IsInvalid(err):
		return kstatus.Conclusion{State: kstatus.Stalled, Reason: v1alpha1.ReasonInvalidSpec, Message: err.Error()}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return kstatus.Conclusion{State: kstatus.Reconciling, Reason: v1alpha1.ReasonDeploymentTerminating, Message: "The namespace is being deleted"}
	default:
		return kstatus.Conclusion{State: kstatus.Reconciling, Reason: v1alpha1.ReasonDeploymentRefused, Message: err.Error()}
	}
}

// then returns the attempt after this one.
func (a Attempt) then(next Attempt) Attempt {
	next.Count = 1
	isSame := a.Want == next.Want && a.isRefused() == next.isRefused()
	if isSame && next.At.Sub(a.At) < backoff.ForgetAfter {
		next.Count += a.Count
	}
	return next
}

func (a Attempt) isRefused() bool { return a.Refusal.Reason != "" }

// wait returns how long it is until the same may be requested again.
func (a Attempt) wait(now time.Time) time.Duration {
	delay := backoff.Delay(a.Count)
	switch {
	case a.Refusal.State == kstatus.Stalled:
		delay = retryInvalid
	case a.isRefused():
		delay = backoff.Doubled(firstRetry, a.Count-1, slowestRetry)
	}
	return min(delay, max(0, a.At.Add(delay).Sub(now)))
}

// isContested reports whether somebody has undone this write so often that the next repair
// may well not be the last.
func (a Attempt) isContested(now time.Time) bool {
	return !a.isRefused() && a.Count > backoff.Free && a.wait(now) > 0
}
