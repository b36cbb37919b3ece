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

// Memory is what a process remembers about an Icecream from sync to sync. The zero value is
// the memory of a new process. Losing it repeats a request and nothing worse. All times are
// those of this process: the clocks of nodes and of the API server can be ahead or behind.
type Memory struct {
	kstatus.History         // since when the present problem lasts
	Seen            Seen    // what the status of the Deployment described last
	Write           Attempt // the last write of the Deployment
}

// Seen is the last generation of a Deployment that its status described, and a fingerprint of
// its spec.
type Seen struct {
	UID        types.UID
	Generation int64
	Spec       string
}

// Attempt is the last write and its outcome.
type Attempt struct {
	Goal  string    // a fingerprint of what was requested; empty before the first write
	At    time.Time // when the response came
	Count int       // how often in a row the same request got such a response

	// Altered is a fingerprint of what the API server stored otherwise than requested, as
	// admission policies and webhooks make it do. To request it again would change nothing.
	Altered string
	// Refused is why the API server refused the write; the zero value if it did not.
	Refused kstatus.Conclusion
	// Undone describes who keeps undoing which fields.
	Undone string
}

// A quota, a policy or a webhook can allow a refused write later, and the controller does not
// see that. An invalid Deployment becomes valid by an edit of the Icecream, which is seen at
// once, or of an admission policy.
const (
	firstRetry, slowestRetry = time.Second, time.Minute
	retryInvalid             = 5 * time.Minute
)

// refusalOf returns what to report about a refused write.
func refusalOf(err error) kstatus.Conclusion {
	switch {
	case apierrors.IsInvalid(err):
		return stalled(v1alpha1.ReasonInvalidSpec, err.Error())
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconciling(v1alpha1.ReasonDeploymentTerminating, "The namespace is being deleted")
	default:
		return reconciling(v1alpha1.ReasonDeploymentRefused, err.Error())
	}
}

// then returns the attempt after this one.
func (a Attempt) then(next Attempt) Attempt {
	next.Count = 1
	isSame := a.Goal == next.Goal && a.isRefused() == next.isRefused()
	if isSame && next.At.Sub(a.At) < backoff.ForgetAfter {
		next.Count += a.Count
	}
	return next
}

func (a Attempt) isRefused() bool { return a.Refused.Reason != "" }

// wait returns how long to wait before the same request.
func (a Attempt) wait(now time.Time) time.Duration {
	delay := backoff.Delay(a.Count)
	switch {
	case a.Refused.State == kstatus.Stalled:
		delay = retryInvalid
	case a.isRefused():
		delay = backoff.Doubled(firstRetry, a.Count-1, slowestRetry)
	}
	return min(delay, max(0, a.At.Add(delay).Sub(now)))
}

// isUndone reports whether somebody has undone this write so often that the next repair is
// probably not the last.
func (a Attempt) isUndone(now time.Time) bool {
	return !a.isRefused() && a.Count > backoff.Free && a.wait(now) > 0
}
