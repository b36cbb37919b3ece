package icecream

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// defaultProgressDeadline is what the API server puts into a Deployment without
// one, in seconds.
const defaultProgressDeadline = 600

// forever is the patience with what ends by itself, or by what somebody does
// about an object that is not ours.
const forever = time.Duration(math.MaxInt64)

// Problem is what keeps an Icecream from becoming Ready. The zero value is none.
type Problem struct {
	Reason   string
	Message  string
	Object   string        // the one that is slow; empty where the reason says it all
	Quiet    bool          // not mentioned until the patience has ended
	Patience time.Duration // how long it may last before the Icecream is Stalled
}

// isLoud reports whether there is a problem that is worth mentioning at once.
func (p Problem) isLoud() bool { return p.Reason != "" && !p.Quiet }

// isOneWith reports whether other is the same problem as one that is remembered,
// perhaps from the status alone, in other words.
func (p Problem) isOneWith(other Problem) bool {
	return p.Reason == other.Reason && (p.Object == other.Object || p.Object == "" || other.Object == "")
}

// problem is what keeps the Icecream from becoming Ready, as the caches show it.
// Of several problems it is the same one as long as they last.
func (a Assessment) problem() Problem {
	d := a.target
	if d == nil || d.DeletionTimestamp != nil || a.isComplete {
		return Problem{}
	}
	worst, slowest := a.worstPods()
	if worst.Reason != "" {
		return Problem{Reason: worst.Reason, Message: worst.Message, Patience: a.StallAfter}
	}
	for _, seen := range []Problem{a.replicaSetProblem(d), a.rolloutProblem(d)} {
		if seen.Reason != "" {
			return seen
		}
	}
	return a.slowness(d, slowest)
}

// worstPods are the longest trouble of a Pod made from the current spec, and the
// Pod that has taken longest to become ready.
func (a Assessment) worstPods() (worst Trouble, slowest Pod) {
	for pod := range a.current() {
		if pod.Ready {
			continue
		}
		if pod.Trouble.Reason != "" && (worst.Reason == "" || isBefore(pod.Trouble, worst)) {
			worst = pod.Trouble
		}
		if slowest.Name == "" || cmp.Or(pod.Since.Compare(slowest.Since), strings.Compare(pod.Name, slowest.Name)) < 0 {
			slowest = pod
		}
	}
	return worst, slowest
}

// replicaSetProblem is that no ReplicaSet can be created for the current spec.
// kube-controller-manager then leaves status.observedGeneration as it was.
func (a Assessment) replicaSetProblem(d *appsv1.Deployment) Problem {
	progress := deploymentCondition(d, appsv1.DeploymentProgressing)
	if progress.Status != corev1.ConditionFalse || progress.Reason != replicaSetCreateError {
		return Problem{}
	}
	return Problem{Reason: v1alpha1.ReasonReplicaFailure, Message: progress.Message, Patience: a.StallAfter}
}

// The reasons of kube-controller-manager's Deployment controller that matter here
// (k8s.io/kubernetes/pkg/controller/deployment/util).
const (
	replicaSetCreateError    = "ReplicaSetCreateError"
	progressDeadlineExceeded = "ProgressDeadlineExceeded"
)

// rolloutProblem is what the Deployment says about the rollout of its current
// spec.
func (a Assessment) rolloutProblem(d *appsv1.Deployment) Problem {
	if d.Status.ObservedGeneration < d.Generation {
		return Problem{} // it speaks of an earlier spec
	}
	if isPausedInMidRollout(d) {
		return Problem{Reason: v1alpha1.ReasonDeploymentPaused, Message: fmt.Sprintf("Deployment %q is paused", d.Name)}
	}
	if failure := deploymentCondition(d, appsv1.DeploymentReplicaFailure); failure.Status == corev1.ConditionTrue {
		return Problem{Reason: v1alpha1.ReasonReplicaFailure, Message: failure.Message, Patience: a.StallAfter}
	}
	if progress := deploymentCondition(d, appsv1.DeploymentProgressing); progress.Status == corev1.ConditionFalse && progress.Reason == progressDeadlineExceeded {
		// It outlives an edit that goes back to an earlier template, until there
		// is progress.
		return Problem{Reason: v1alpha1.ReasonProgressDeadlineExceeded, Message: progress.Message, Quiet: true, Patience: a.StallAfter}
	}
	if isRolledOut(d) && len(a.old) > 0 && isTerminating(a.old) {
		return Problem{Reason: v1alpha1.ReasonDeploymentTerminating, Message: terminating(a.old[0]), Patience: forever}
	}
	return Problem{}
}

// isPausedInMidRollout reports whether a Deployment is paused and some of its
// Pods are not made from its current template: nothing will change that.
func isPausedInMidRollout(d *appsv1.Deployment) bool {
	return d.Spec.Paused && d.Status.UpdatedReplicas < d.Status.Replicas ||
		d.Spec.Paused && d.Status.Replicas == 0 && ptr.Deref(d.Spec.Replicas, 1) > 0
}

// slowness is that something takes longer than the Deployment's deadline. The
// Deployment's own patience ends with its rollout; what comes later, such as a Pod
// added by scaling, gets as much of it from here.
func (a Assessment) slowness(d *appsv1.Deployment, slowest Pod) Problem {
	deadline := ptr.Deref(d.Spec.ProgressDeadlineSeconds, defaultProgressDeadline)
	if deadline == math.MaxInt32 {
		return Problem{}
	}
	p := Problem{Reason: v1alpha1.ReasonProgressDeadlineExceeded, Quiet: true, Patience: time.Duration(deadline) * time.Second}
	switch {
	case slowest.Name != "":
		p.Object = slowest.Name
		p.Message = fmt.Sprintf("Pod %q has not become ready within %d s", slowest.Name, deadline)
	case d.Status.ObservedGeneration < d.Generation:
		p.Object = "generation"
		p.Message = fmt.Sprintf("The Deployment controller has not acted on generation %d of Deployment %q within %d s", d.Generation, d.Name, deadline)
	default:
		p.Object = "rollout"
		p.Message = fmt.Sprintf("Deployment %q has not been rolled out within %d s", d.Name, deadline)
	}
	return p
}

// stallsIn is how long it is until the Icecream is Stalled by the remembered
// problem; zero when it is already. never is true when it will not be.
func (m Memory) stallsIn(now time.Time) (left time.Duration, never bool) {
	if m.Problem.Reason == "" || m.Problem.Patience == forever {
		return 0, true
	}
	return max(0, m.Since.Add(m.Problem.Patience).Sub(now)), false
}

// terminating says of a Deployment of a former name that it is on its way out, and
// what holds it.
func terminating(d *appsv1.Deployment) string {
	if len(d.Finalizers) == 0 {
		return fmt.Sprintf("Deployment %q, which has been replaced, is being deleted", d.Name)
	}
	return fmt.Sprintf("Deployment %q, which has been replaced, is being deleted; it is held by %s", d.Name, strings.Join(d.Finalizers, ", "))
}

// isBefore orders troubles: the longest first, then by their words.
func isBefore(a, b Trouble) bool {
	return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Reason, b.Reason), strings.Compare(a.Message, b.Message)) < 0
}

func deploymentCondition(d *appsv1.Deployment, of appsv1.DeploymentConditionType) appsv1.DeploymentCondition {
	for _, condition := range d.Status.Conditions {
		if condition.Type == of {
			return condition
		}
	}
	return appsv1.DeploymentCondition{}
}
