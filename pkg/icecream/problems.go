package icecream

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream/podproblem"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
)

// defaultProgressDeadline is the API server's default for a Deployment, in seconds.
const defaultProgressDeadline = 600

// Problem is what keeps an Icecream from becoming Ready. The zero value means none.
type Problem = kstatus.Problem

// findProblem returns what keeps the Icecream from becoming Ready, as the caches show
// it. Of several problems it is the same one for as long as they last.
func (o Observed) findProblem() Problem {
	if o.own() == nil || o.own().DeletionTimestamp != nil || o.isComplete() {
		return Problem{}
	}
	return cmp.Or(o.podProblem(), o.deploymentProblem(), o.slownessProblem())
}

// podReasons maps problems of Pods to reasons of conditions.
var podReasons = map[podproblem.Reason]string{
	podproblem.ContainerError:  v1alpha1.ReasonContainerError,
	podproblem.CrashLoop:       v1alpha1.ReasonCrashLoopBackOff,
	podproblem.ImagePullFailed: v1alpha1.ReasonImagePullBackOff,
	podproblem.Unschedulable:   v1alpha1.ReasonUnschedulable,
}

// podProblem is the longest-lasting problem of a Pod made from the spec.
func (o Observed) podProblem() Problem {
	var worst podproblem.Problem
	for pod := range o.current() {
		if pod.Problem.Reason != "" && (worst.Reason == "" || isBefore(pod.Problem, worst)) {
			worst = pod.Problem
		}
	}
	if worst.Reason == "" {
		return Problem{}
	}
	return Problem{Reason: podReasons[worst.Reason], Message: worst.Message, Patience: o.StallAfter}
}

// isBefore orders the problems of Pods: the longest first, then by message.
func isBefore(a, b podproblem.Problem) bool {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Reason, b.Reason), strings.Compare(a.Message, b.Message)) < 0
}

// The reasons of kube-controller-manager's Deployment controller that matter here
// (k8s.io/kubernetes/pkg/controller/deployment/util).
const (
	replicaSetCreateError    = "ReplicaSetCreateError"
	progressDeadlineExceeded = "ProgressDeadlineExceeded"
)

// deploymentProblem is what the Deployment itself says.
func (o Observed) deploymentProblem() Problem {
	d := o.own()
	isBetween := d.Status.UpdatedReplicas < d.Status.Replicas || d.Status.Replicas == 0 && ptr.Deref(d.Spec.Replicas, 1) > 0
	failure := deploymentCondition(d, appsv1.DeploymentReplicaFailure)
	progress := deploymentCondition(d, appsv1.DeploymentProgressing)
	hasFailed := func(reason string) bool { return progress.Status == corev1.ConditionFalse && progress.Reason == reason }
	switch {
	case hasFailed(replicaSetCreateError): // which leaves status.observedGeneration as it was
		return Problem{Reason: v1alpha1.ReasonReplicaFailure, Message: progress.Message, Patience: o.StallAfter}
	case !o.isObserved(d):
		return Problem{}
	case d.Spec.Paused && isBetween: // Some Pods are not made from its current template, and nothing will change that.
		return Problem{Reason: v1alpha1.ReasonDeploymentPaused, Message: fmt.Sprintf("Deployment %q is paused", d.Name)}
	case failure.Status == corev1.ConditionTrue: // The Pods are refused, by a quota for example.
		return Problem{Reason: v1alpha1.ReasonReplicaFailure, Message: failure.Message, Patience: o.StallAfter}
	case hasFailed(progressDeadlineExceeded):
		// It goes on saying so after an edit that returns to an earlier template, until there
		// is progress. That is given time, but no more than without the condition.
		return Problem{
			Reason:   v1alpha1.ReasonProgressDeadlineExceeded,
			Message:  progress.Message,
			Quiet:    true,
			Patience: min(o.StallAfter, deadlineOf(d)),
		}
	default:
		return Problem{}
	}
}

// slownessProblem is that something takes longer than the Deployment's deadline. The
// Deployment controller checks the deadline only during a rollout. Anything later, such as a
// Pod added by scaling, gets the same time here.
func (o Observed) slownessProblem() Problem {
	d := o.own()
	patience := deadlineOf(d)
	if patience == kstatus.Forever {
		return Problem{}
	}
	p := Problem{Reason: v1alpha1.ReasonProgressDeadlineExceeded, Quiet: true, Patience: patience}
	deadline := int(patience.Seconds())
	slowest := o.slowestPod()
	switch {
	case slowest.Name != "":
		p.Object = slowest.Name
		p.Message = fmt.Sprintf("Pod %q has not become ready within %d s", slowest.Name, deadline)
	case !o.isObserved(d):
		p.Object = "generation"
		p.Message = fmt.Sprintf("The Deployment controller has not acted on generation %d of Deployment %q within %d s",
			d.Generation, d.Name, deadline)
	default:
		p.Object = "rollout"
		p.Message = fmt.Sprintf("Deployment %q has not been rolled out within %d s", d.Name, deadline)
	}
	return p
}

// deadlineOf returns how long a Deployment can take to make progress.
func deadlineOf(d *appsv1.Deployment) time.Duration {
	seconds := ptr.Deref(d.Spec.ProgressDeadlineSeconds, defaultProgressDeadline)
	if seconds == math.MaxInt32 {
		return kstatus.Forever
	}
	return time.Duration(seconds) * time.Second
}

// slowestPod returns the Pod made from the spec that has been unready for the longest time;
// the zero value if all are ready.
func (o Observed) slowestPod() (slowest Pod) {
	for pod := range o.current() {
		if pod.Ready {
			continue
		}
		if slowest.Name == "" || cmp.Or(pod.Since.Compare(slowest.Since), strings.Compare(pod.Name, slowest.Name)) < 0 {
			slowest = pod
		}
	}
	return slowest
}

func deploymentCondition(d *appsv1.Deployment, of appsv1.DeploymentConditionType) appsv1.DeploymentCondition {
	for _, condition := range d.Status.Conditions {
		if condition.Type == of {
			return condition
		}
	}
	return appsv1.DeploymentCondition{}
}

// isComplete reports whether nothing is left to do for anybody. It asks the Pods as well as
// the Deployment, so that an Icecream is never Ready with nodes missing from its status
// because one cache is ahead of the other.
func (o Observed) isComplete() bool {
	if !o.isRolledOut() || o.Standing.IsOpen {
		return false
	}
	var placed, ready int32
	for _, pod := range o.Pods {
		if !pod.isOf(o.Live) {
			continue
		}
		if pod.Node != "" {
			placed++
		}
		if pod.Ready {
			ready++
		}
	}
	return placed == o.Live.Status.Replicas && ready == o.Live.Status.Replicas
}

// updated returns how many Pods are made from the spec. While the Deployment's status
// describes an earlier one, it counts the Pods themselves.
func (o Observed) updated() int32 {
	d := o.own()
	switch {
	case d == nil:
		return 0
	case o.isObserved(d):
		return d.Status.UpdatedReplicas
	}
	var current int32
	for range o.current() {
		current++
	}
	return min(current, d.Status.UpdatedReplicas)
}

// current are the Pods of the Icecream's Deployment that are made from the spec.
func (o Observed) current() iter.Seq[Pod] {
	hash := specHash(o.Icecream.Spec)
	return func(yield func(Pod) bool) {
		for _, pod := range o.Pods {
			if pod.isOf(o.Live) && pod.SpecHash == hash && !yield(pod) {
				return
			}
		}
	}
}

// own is the live Deployment if the Icecream owns it; otherwise nil.
func (o Observed) own() *appsv1.Deployment {
	if o.Live != nil && IsControlledBy(o.Live, o.Icecream) {
		return o.Live
	}
	return nil
}

// isRolledOut reports whether all requested Pods of the Icecream's Deployment are available and
// made from its current template, and no others are left.
func (o Observed) isRolledOut() bool {
	d := o.own()
	if d == nil || d.DeletionTimestamp != nil || !o.isObserved(d) {
		return false
	}
	replicas := ptr.Deref(d.Spec.Replicas, 1)
	return d.Status.Replicas == replicas && d.Status.UpdatedReplicas == replicas && d.Status.AvailableReplicas == replicas
}
