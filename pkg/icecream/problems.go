package icecream

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/podproblem"
	"nicoleh.io/k8s-controller/pkg/kit/text"
)

// defaultProgressDeadline is the API server's default for a Deployment, in seconds.
const defaultProgressDeadline = 600

// Problem is what keeps an Icecream from becoming Ready. The zero value means none.
type Problem = kstatus.Problem

// check finds one kind of problem. name describes it.
type check struct {
	name string
	find func(Observed) Problem
}

// checks are run in this order if an Icecream is not complete. The first problem counts.
var checks = []check{
	{"a Pod cannot run", Observed.podProblem},
	{"the ReplicaSet cannot be created", Observed.replicaSetProblem},
	{"the Deployment is paused in mid-rollout", Observed.pauseProblem},
	{"Pods cannot be created", Observed.replicaProblem},
	{"the Deployment has given up", Observed.deadlineProblem},
	{"a replaced Deployment does not go away", Observed.deletionProblem},
	{"something is slow", Observed.slownessProblem},
}

// findProblem returns what keeps the Icecream from becoming Ready. Of several problems it
// returns the same one for as long as they last.
func (o Observed) findProblem() Problem {
	if o.target() == nil || o.target().DeletionTimestamp != nil || o.isComplete() {
		return Problem{}
	}
	for _, check := range checks {
		if p := check.find(o); p.Reason != "" {
			return p
		}
	}
	return Problem{}
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

// replicaSetProblem is that no ReplicaSet can be created for the current spec.
// kube-controller-manager then leaves status.observedGeneration as it was.
func (o Observed) replicaSetProblem() Problem {
	progress := deploymentCondition(o.target(), appsv1.DeploymentProgressing)
	if progress.Status != corev1.ConditionFalse || progress.Reason != replicaSetCreateError {
		return Problem{}
	}
	return Problem{Reason: v1alpha1.ReasonReplicaFailure, Message: progress.Message, Patience: o.StallAfter}
}

// The reasons of kube-controller-manager's Deployment controller that matter here
// (k8s.io/kubernetes/pkg/controller/deployment/util).
const (
	replicaSetCreateError    = "ReplicaSetCreateError"
	progressDeadlineExceeded = "ProgressDeadlineExceeded"
)

// pauseProblem is that the Deployment is paused while some of its Pods are not made from its
// current template: that will not change by itself.
func (o Observed) pauseProblem() Problem {
	d := o.target()
	isBetween := d.Status.UpdatedReplicas < d.Status.Replicas || d.Status.Replicas == 0 && ptr.Deref(d.Spec.Replicas, 1) > 0
	if !o.isObserved(d) || !d.Spec.Paused || !isBetween {
		return Problem{}
	}
	return Problem{Reason: v1alpha1.ReasonDeploymentPaused, Message: fmt.Sprintf("Deployment %q is paused", d.Name)}
}

// replicaProblem is that the Deployment's Pods are refused, for example by a quota.
func (o Observed) replicaProblem() Problem {
	failure := deploymentCondition(o.target(), appsv1.DeploymentReplicaFailure)
	if !o.isObserved(o.target()) || failure.Status != corev1.ConditionTrue {
		return Problem{}
	}
	return Problem{Reason: v1alpha1.ReasonReplicaFailure, Message: failure.Message, Patience: o.StallAfter}
}

// deadlineProblem is that the Deployment reports no progress for too long. After an edit that
// returns to an earlier template, it keeps reporting that until there is progress, so it
// gets time, but no more than without the condition.
func (o Observed) deadlineProblem() Problem {
	progress := deploymentCondition(o.target(), appsv1.DeploymentProgressing)
	if !o.isObserved(o.target()) || progress.Status != corev1.ConditionFalse || progress.Reason != progressDeadlineExceeded {
		return Problem{}
	}
	return Problem{Reason: v1alpha1.ReasonProgressDeadlineExceeded, Message: progress.Message, Quiet: true, Patience: min(o.StallAfter, deadlineOf(o.target()))}
}

// deletionProblem is that only the deletion of Deployments with previous names is not finished.
func (o Observed) deletionProblem() Problem {
	if !o.isRolledOut() || len(o.old()) == 0 || !isTerminating(o.old()) {
		return Problem{}
	}
	old := o.old()[0]
	message := fmt.Sprintf("Deployment %q, which has been replaced, is being deleted%s", old.Name, heldBy(old))
	return Problem{Reason: v1alpha1.ReasonDeploymentTerminating, Message: message, Patience: kstatus.Forever}
}

// slownessProblem is that something takes longer than the Deployment's deadline. The
// Deployment controller checks the deadline only during a rollout. Anything later, such as a
// Pod added by scaling, gets the same time here.
func (o Observed) slownessProblem() Problem {
	d := o.target()
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
		p.Message = fmt.Sprintf("The Deployment controller has not acted on generation %d of Deployment %q within %d s", d.Generation, d.Name, deadline)
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

// isTerminating reports whether all of these Deployments are being deleted.
func isTerminating(deployments []*appsv1.Deployment) bool {
	return !slices.ContainsFunc(deployments, func(d *appsv1.Deployment) bool { return d.DeletionTimestamp == nil })
}

// isComplete reports whether nothing is left to do for anybody. It checks the Pods as well as
// the Deployment, so that an Icecream is never Ready with nodes missing from its status
// because one cache is ahead of the other.
func (o Observed) isComplete() bool {
	if !o.isRolledOut() || len(o.old()) > 0 {
		return false
	}
	label := text.LabelValue(o.Named.Name)
	var placed, ready int32
	for _, pod := range o.Pods {
		if pod.Deployment != label {
			continue
		}
		if pod.Node != "" {
			placed++
		}
		if pod.Ready {
			ready++
		}
	}
	return placed == o.Named.Status.Replicas && ready == o.Named.Status.Replicas
}

// updated returns how many Pods are made from the spec. While the Deployment's status
// describes an earlier one, it counts the Pods themselves.
func (o Observed) updated() int32 {
	d := o.target()
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

// current are the Pods of the target that are made from the spec.
func (o Observed) current() iter.Seq[Pod] {
	label, hash := text.LabelValue(o.Named.Name), specHash(o.Icecream.Spec)
	return func(yield func(Pod) bool) {
		for _, pod := range o.Pods {
			if pod.Deployment == label && pod.SpecHash == hash && !yield(pod) {
				return
			}
		}
	}
}
