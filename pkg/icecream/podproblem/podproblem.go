// Package podproblem finds the root cause of a Pod's not becoming ready.
//
// A problem has the same reason for as long as its cause lasts, whatever states a kubelet moves the
// container through meanwhile: neither the change between ErrImagePull and ImagePullBackOff nor that
// between a crash and the wait for the next start is another problem.
package podproblem

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/pkg/kit/text"
)

// Reason is the kind of a problem.
type Reason string

// All kinds of problems.
const (
	ContainerError  Reason = "ContainerError"  // a container cannot be made or started
	CrashLoop       Reason = "CrashLoop"       // a container keeps ending
	ImagePullFailed Reason = "ImagePullFailed" // a container's image cannot be pulled
	Unschedulable   Reason = "Unschedulable"   // there is no node for the Pod, or the scheduler fails to look for one
	Failed          Reason = "Failed"          // the Pod has failed for good: its node has rejected or evicted it
	NotReady        Reason = "NotReady"        // nothing has failed, but the Pod is not ready (yet)
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{ContainerError, CrashLoop, ImagePullFailed, Unschedulable, Failed, NotReady}
}

// Problem is why a Pod is not ready. The zero value is none.
type Problem struct {
	Reason  Reason
	Message string // a sentence that names the Pod
	Since   time.Time
}

// Of returns the problem of a Pod; the zero value if the Pod is ready.
func Of(pod *corev1.Pod) Problem {
	isReady, since := Ready(pod)
	if isReady && pod.Status.Phase != corev1.PodFailed {
		return Problem{}
	}
	p := Problem{Since: since}
	switch scheduled, container := condition(pod, corev1.PodScheduled), decisive(pod); {
	case pod.Status.Phase == corev1.PodFailed:
		p.Reason = Failed
		p.Message = fmt.Sprintf("Pod %q has failed%s%s", pod.Name, colon(pod.Status.Reason), colon(pod.Status.Message))
	case is(scheduled, corev1.ConditionFalse) && slices.Contains(unschedulableReasons, scheduled.Reason):
		p.Reason, p.Since = Unschedulable, scheduled.LastTransitionTime.Time
		p.Message = fmt.Sprintf("Pod %q cannot be scheduled: %s", pod.Name, scheduled.Message)
	case container != nil && failureOf(*container) != "":
		p.Reason = failureOf(*container)
		p.Message = fmt.Sprintf("Pod %q, container %q: %s", pod.Name, container.Name, messageOf(*container))
	default:
		p.Reason = NotReady
		p.Message = fmt.Sprintf("Pod %q is not ready: %s", pod.Name, waitsFor(pod, scheduled, container))
	}
	p.Message = clip(oneLine(p.Message))
	return p
}

// unschedulableReasons are the reasons for which the scheduler has found no node. A scheduling gate is none.
var unschedulableReasons = []string{corev1.PodReasonUnschedulable, corev1.PodReasonSchedulerError}

// Ready reports whether a Pod is ready, and since when that has been so: one that never
// was has not been ready since its creation.
func Ready(pod *corev1.Pod) (isReady bool, since time.Time) {
	if ready := condition(pod, corev1.PodReady); ready != nil {
		return ready.Status == corev1.ConditionTrue, ready.LastTransitionTime.Time
	}
	return false, pod.CreationTimestamp.Time
}

// The most bytes that a cache keeps of a message, of an image, and of a reason.
const (
	maxMessage = 1024
	maxImage   = 512
	maxReason  = 128
)

// Strip sets on to what [Of] and [Ready] read of a Pod's spec and status, and its phase, for caches
// of many Pods. However large the Pod is, that is a few kilobytes at most.
func Strip(pod, on *corev1.Pod) {
	on.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
	on.Status = corev1.PodStatus{Phase: pod.Status.Phase}
	keep := []corev1.PodConditionType{corev1.PodReady}
	if Of(pod) != (Problem{}) {
		keep = append(keep, corev1.PodScheduled, corev1.PodReadyToStartContainers)
		if gate := unmet(pod); gate != "" {
			on.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}}
			keep = append(keep, gate)
		}
		on.Status.Reason, on.Status.Message = brief(pod.Status.Reason), clip(pod.Status.Message)
		stripContainer(pod, on)
	}
	for _, of := range keep {
		if c := condition(pod, of); c != nil { // The API server admits any number of one type.
			on.Status.Conditions = append(on.Status.Conditions, corev1.PodCondition{
				Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: brief(c.Reason), Message: clip(c.Message),
			})
		}
	}
}

// stripContainer keeps the container that decides.
func stripContainer(pod, on *corev1.Pod) {
	c := decisive(pod)
	if c == nil {
		return
	}
	kept := []corev1.ContainerStatus{{
		Name: c.Name, Image: text.Clip(c.Image, maxImage), Ready: c.Ready, Started: c.Started,
		State: stripState(c.State), LastTerminationState: stripState(c.LastTerminationState),
	}}
	if isInit(pod, c) {
		on.Status.InitContainerStatuses = kept
	} else {
		on.Status.ContainerStatuses = kept
	}
}

// isInit reports whether a container is one of those that a Pod starts first.
func isInit(pod *corev1.Pod, container *corev1.ContainerStatus) bool {
	return slices.ContainsFunc(pod.Status.InitContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == container.Name })
}

func stripState(s corev1.ContainerState) (kept corev1.ContainerState) {
	if s.Waiting != nil {
		kept.Waiting = &corev1.ContainerStateWaiting{Reason: brief(s.Waiting.Reason), Message: clip(s.Waiting.Message)}
	}
	if s.Running != nil {
		kept.Running = &corev1.ContainerStateRunning{}
	}
	if s.Terminated != nil {
		kept.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: s.Terminated.ExitCode, Reason: brief(s.Terminated.Reason), Message: clip(s.Terminated.Message),
		}
	}
	return kept
}

func clip(message string) string { return text.Clip(message, maxMessage) }

func brief(reason string) string { return text.Clip(reason, maxReason) }

func condition(pod *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == of {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

func is(c *corev1.PodCondition, status corev1.ConditionStatus) bool {
	return c != nil && c.Status == status
}

// decisive returns the first container that has failed, or else the first that is not ready; nil if
// all are ready. A kubelet calls an init container ready when it has ended well, or, if it goes on
// running, when it has started.
func decisive(pod *corev1.Pod) (unready *corev1.ContainerStatus) {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if failureOf(statuses[i]) != "" {
				return &statuses[i]
			}
			if unready == nil && !statuses[i].Ready {
				unready = &statuses[i]
			}
		}
	}
	return unready
}

// failureOf returns what keeps a container from running now; empty if nothing does. How it ended
// some time ago does not matter: today it may be slow for another reason.
//
// A container that was never started is one that could not be started, also while its kubelet
// waits before it tries that again. One whose hook has failed was started and has ended.
func failureOf(c corev1.ContainerStatus) Reason {
	if c.State.Terminated != nil && c.State.Terminated.ExitCode == 0 {
		return ""
	}
	ended := lastEnd(c)
	isUnstarted := ended != nil && slices.Contains([]string{"StartError", "ContainerCannotRun"}, ended.Reason)
	if c.State.Waiting == nil {
		switch {
		case c.State.Terminated == nil:
			return ""
		case isUnstarted:
			return ContainerError
		default:
			return CrashLoop
		}
	}
	switch c.State.Waiting.Reason {
	case "", "ContainerCreating", "PodInitializing":
		return ""
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
		"RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed":
		return ImagePullFailed
	case "CrashLoopBackOff":
		if isUnstarted {
			return ContainerError
		}
		return CrashLoop
	case "PostStartHookError":
		return CrashLoop
	default: // CreateContainerError, RunContainerError and others
		return ContainerError
	}
}

// lastEnd returns how a container ended last; nil if that is not known.
func lastEnd(c corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	return cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated)
}

// messageOf says what has failed. As far as a kubelet says the same in several states, so does this.
func messageOf(c corev1.ContainerStatus) string {
	ended := lastEnd(c)
	waiting := cmp.Or(c.State.Waiting, &corev1.ContainerStateWaiting{})
	switch failure := failureOf(c); {
	case failure == ImagePullFailed:
		return fmt.Sprintf("cannot pull image %q%s", text.Clip(c.Image, maxImage), colon(backOff.ReplaceAllString(waiting.Message, "")))
	case failure == ContainerError && ended != nil && (waiting.Reason == "" || waiting.Reason == "CrashLoopBackOff"):
		return cmp.Or(ended.Message, ended.Reason)
	case failure == ContainerError:
		return cmp.Or(waiting.Message, waiting.Reason)
	case waiting.Reason == "PostStartHookError":
		return "the postStart hook failed" + colon(waiting.Message)
	case ended == nil:
		return "has exited"
	default:
		return fmt.Sprintf("exited with code %d (%s)%s", ended.ExitCode, ended.Reason, colon(ended.Message))
	}
}

// waitsFor says what keeps a Pod from being ready in which nothing has failed.
func waitsFor(pod *corev1.Pod, scheduled *corev1.PodCondition, container *corev1.ContainerStatus) string {
	ready, sandbox := condition(pod, corev1.PodReady), condition(pod, corev1.PodReadyToStartContainers)
	switch gate := unmet(pod); {
	case is(scheduled, corev1.ConditionFalse):
		return "it is not scheduled" + colon(scheduled.Reason) + colon(scheduled.Message)
	case pod.Spec.NodeName == "":
		return "it is not scheduled"
	case is(sandbox, corev1.ConditionFalse):
		return "its sandbox is not ready; the Pod's events say more about volumes and the network"
	case container != nil && isInit(pod, container):
		return fmt.Sprintf("init container %q has not finished", container.Name)
	case container != nil:
		return fmt.Sprintf("container %q %s", container.Name, stateOf(*container))
	case ready == nil:
		return fmt.Sprintf("node %q has not started it", pod.Spec.NodeName)
	case gate != "":
		behind := condition(pod, gate)
		if behind == nil {
			return fmt.Sprintf("its readiness gate %q has no condition", gate)
		}
		return fmt.Sprintf("its readiness gate %q is %s%s%s", gate, behind.Status, colon(behind.Reason), colon(behind.Message))
	default:
		return cmp.Or(ready.Message, ready.Reason, "its containers are; its node may be lost")
	}
}

// stateOf says what an unready container that has not failed does.
func stateOf(c corev1.ContainerStatus) string {
	switch {
	case c.State.Running != nil && c.Started != nil && !*c.Started:
		return "runs, and has not passed its startup probe"
	case c.State.Running != nil:
		return "runs, and does not pass its readiness probe"
	case c.State.Terminated != nil:
		return "has exited"
	case c.State.Waiting != nil:
		return "waits" + colon(c.State.Waiting.Reason) + colon(c.State.Waiting.Message)
	default:
		return "waits"
	}
}

// unmet returns the first readiness gate whose condition is not True; empty if there is none.
func unmet(pod *corev1.Pod) corev1.PodConditionType {
	for _, gate := range pod.Spec.ReadinessGates {
		if !is(condition(pod, gate.ConditionType), corev1.ConditionTrue) {
			return gate.ConditionType
		}
	}
	return ""
}

// backOff matches what a kubelet that backs off puts before the error that it quotes.
var backOff = regexp.MustCompile(`^Back-off pulling image ".*?"(?:: \w+: )?`)

// colon returns a text behind a colon; nothing if there is no text.
func colon(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// oneLine returns a text of several lines as one.
func oneLine(message string) string { return strings.Join(strings.Fields(message), " ") }
