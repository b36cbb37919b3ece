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

// How long an Icecream must have been well after a container has crashed or a Pod has failed, since
// such a problem only seems to be over in between; and how long there must have been no progress before
// it is worth saying what a Pod waits for.
const (
	settle = time.Minute
	quiet  = time.Minute
)

// findProblem returns what keeps the Icecream from becoming Ready, as the caches show
// it. Of several problems it is the same one for as long as they last.
func (o Observed) findProblem() Problem {
	if o.own() == nil || o.own().DeletionTimestamp != nil || o.isComplete() {
		return Problem{}
	}
	return cmp.Or(o.podProblem(), o.deploymentProblem(), o.failureProblem())
}

// podReasons maps problems of Pods to reasons of conditions.
var podReasons = map[podproblem.Reason]string{
	podproblem.ContainerError:  v1alpha1.ReasonContainerError,
	podproblem.CrashLoop:       v1alpha1.ReasonCrashLoopBackOff,
	podproblem.ImagePullFailed: v1alpha1.ReasonImagePullBackOff,
	podproblem.Unschedulable:   v1alpha1.ReasonUnschedulable,
	podproblem.Failed:          v1alpha1.ReasonPodFailed,
	podproblem.NotReady:        v1alpha1.ReasonPodNotReady,
}

// podProblem is the longest-lasting failure of a Pod made from the spec.
func (o Observed) podProblem() Problem {
	worst := longest(o.current(), func(p podproblem.Problem) bool { return p.Reason != "" && p.Reason != podproblem.NotReady })
	return Problem{Reason: podReasons[worst.Reason], Message: worst.Message}
}

// failureProblem is that Pods made from the spec have failed for good since all was well last. Their
// ReplicaSet replaces them at once, and they remain for long.
func (o Observed) failureProblem() Problem {
	if o.failures() <= o.Memory.Failed {
		return Problem{}
	}
	var last podproblem.Problem
	for pod := range o.failed() {
		if last.Reason == "" || isBefore(last, pod.Problem) {
			last = pod.Problem
		}
	}
	return Problem{Reason: v1alpha1.ReasonPodFailed, Message: last.Message}
}

// failures counts the Pods made from the spec that have failed for good.
func (o Observed) failures() (n int) {
	for range o.failed() {
		n++
	}
	return n
}

// waitsFor says what the Pod made from the spec that has been unready for the longest time waits for;
// empty if there is none.
func (o Observed) waitsFor() string {
	return longest(o.current(), func(p podproblem.Problem) bool { return p.Reason == podproblem.NotReady }).Message
}

// longest returns the problem that has lasted for the longest time among those that count.
func longest(pods iter.Seq[Pod], counts func(podproblem.Problem) bool) (worst podproblem.Problem) {
	for pod := range pods {
		if counts(pod.Problem) && (worst.Reason == "" || isBefore(pod.Problem, worst)) {
			worst = pod.Problem
		}
	}
	return worst
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
	switch {
	case progress.Status == corev1.ConditionFalse && progress.Reason == replicaSetCreateError: // It leaves observedGeneration as it was.
		return Problem{Reason: v1alpha1.ReasonReplicaFailure, Message: progress.Message}
	case !isObserved(d):
		return Problem{}
	case d.Spec.Paused && isBetween: // Some Pods are not made from its current template.
		message := fmt.Sprintf("Deployment %q is paused; run kubectl rollout resume deployment/%[1]s", d.Name)
		return Problem{Reason: v1alpha1.ReasonDeploymentPaused, Message: message}
	case failure.Status == corev1.ConditionTrue: // The Pods are refused, by a quota for example.
		return Problem{Reason: v1alpha1.ReasonReplicaFailure, Message: failure.Message}
	default:
		return Problem{}
	}
}

// deadline returns how long there can be no progress before the Icecream is Stalled.
func (o Observed) deadline() time.Duration {
	seconds := int32(defaultProgressDeadline)
	if d := o.own(); d != nil {
		seconds = ptr.Deref(d.Spec.ProgressDeadlineSeconds, seconds)
	}
	if seconds == math.MaxInt32 {
		return kstatus.Forever
	}
	return time.Duration(seconds) * time.Second
}

// quiet returns how long there must have been no progress before what a Pod waits for is a reason.
func (o Observed) quiet() time.Duration { return min(quiet, o.deadline()) }

// progress returns how far the Icecream has come: there is a Deployment, its template is made from the
// spec, so many Pods made from it have a node; or so many are ready.
func (o Observed) progress() int64 {
	d := o.own()
	switch {
	case d == nil || d.DeletionTimestamp != nil:
		return 0
	case !o.hasShape():
		return 1
	}
	scheduled, ready := int64(2), int64(0)
	for pod := range o.current() {
		if pod.Node != "" {
			scheduled++
		}
		if pod.Ready {
			ready++
		}
	}
	if ready > 0 {
		return math.MaxInt32 + ready
	}
	return scheduled
}

// exceeded says what has not come right in time if no Pod is to blame. The Deployment's own condition
// can be that of an earlier template, so it does not decide when.
func (o Observed) exceeded() string {
	d := o.own()
	deadline := int(o.deadline().Seconds())
	switch {
	case d == nil:
		return fmt.Sprintf("The Deployment has not been created within %d s", deadline)
	case !isObserved(d):
		return fmt.Sprintf("The Deployment controller has not acted on generation %d of Deployment %q within %d s",
			d.Generation, d.Name, deadline)
	}
	if progress := deploymentCondition(d, appsv1.DeploymentProgressing); progress.Reason == progressDeadlineExceeded {
		return progress.Message
	}
	return fmt.Sprintf("Deployment %q has not been rolled out within %d s", d.Name, deadline)
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
	for pod := range o.replicas() {
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
	case d == nil || !o.hasShape():
		return 0
	case isObserved(d):
		return d.Status.UpdatedReplicas
	}
	var current int32
	for range o.current() {
		current++
	}
	return min(current, d.Status.UpdatedReplicas)
}

// hasShape reports whether the template of the Icecream's Deployment is made from the spec. A policy
// may have changed what was made.
func (o Observed) hasShape() bool {
	if o.shape == nil {
		template := &o.Live.Spec.Template
		return isMadeFrom(template, o.Icecream.Spec) || template.Annotations[AnnotationSpecHash] == specHash(o.Icecream.Spec)
	}
	return *o.shape
}

// replicas are the Pods of the Icecream's Deployment.
func (o Observed) replicas() iter.Seq[Pod] {
	return o.only(func(pod Pod) bool { return pod.Problem.Reason != podproblem.Failed })
}

// current are the replicas made from the spec.
func (o Observed) current() iter.Seq[Pod] {
	return o.ofTemplate(func(pod Pod) bool { return pod.Problem.Reason != podproblem.Failed })
}

// failed are the Pods made from the spec that have failed for good.
func (o Observed) failed() iter.Seq[Pod] {
	return o.ofTemplate(func(pod Pod) bool { return pod.Problem.Reason == podproblem.Failed })
}

// ofTemplate are the Pods with the hash of the Deployment's template, if that is made from the spec.
func (o Observed) ofTemplate(counts func(Pod) bool) iter.Seq[Pod] {
	if o.Live == nil || !o.hasShape() {
		return func(func(Pod) bool) {}
	}
	hash := o.Live.Spec.Template.Annotations[AnnotationSpecHash]
	return o.only(func(pod Pod) bool { return pod.SpecHash == hash && counts(pod) })
}

// only are the Pods of the live Deployment that count. One that the Deployment controller has never seen
// has none: those with the name of its ReplicaSet are of a former Deployment.
func (o Observed) only(counts func(Pod) bool) iter.Seq[Pod] {
	return func(yield func(Pod) bool) {
		if o.Live == nil || o.Live.Status.ObservedGeneration == 0 {
			return
		}
		for _, pod := range o.Pods {
			if pod.isOf(o.Live) && counts(pod) && !yield(pod) {
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
	if d == nil || d.DeletionTimestamp != nil || !isObserved(d) {
		return false
	}
	replicas := ptr.Deref(d.Spec.Replicas, 1)
	return d.Status.Replicas == replicas && d.Status.UpdatedReplicas == replicas && d.Status.AvailableReplicas == replicas
}
