// Package podproblem finds out why a Pod is not ready. It looks only at the Pod and the time.
//
// A problem has the same reason for as long as its cause lasts, whatever states a kubelet moves the
// container through meanwhile: ErrImagePull and ImagePullBackOff are one problem, and so are a crash,
// the wait for the next start, and the first minute after it.
package podproblem

import (
	"cmp"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/internal/text"
)

// The reasons of problems.
const (
	ContainerError  = "ContainerError"   // a container cannot be made or started
	CrashLoop       = "CrashLoopBackOff" // a container has crashed, or keeps exiting
	ImagePullFailed = "ImagePullBackOff" // a container's image cannot be pulled
	Unschedulable   = "Unschedulable"    // there is no node for the Pod, or the scheduler fails to look for one
	Failed          = "PodFailed"        // the Pod has failed for good: its node has rejected or evicted it
	NotReady        = "PodNotReady"      // nothing has failed, but the Pod has not been ready for a minute, or does not terminate
)

// Reasons returns all reasons.
func Reasons() []string {
	return []string{ContainerError, CrashLoop, ImagePullFailed, Unschedulable, Failed, NotReady}
}

// A container that has crashed is well after it has run for a minute. A Pod can take a minute to become ready. A Pod
// that has failed for good counts for a minute, even though its ReplicaSet replaces it.
const minute = time.Minute

// Problem is why a Pod is not well. Reason is empty if it is, or if it is too early to say.
type Problem struct {
	Reason       string // one of the constants, or empty
	Message      string // a sentence that names the Pod, at most 1 kB
	Since        time.Time
	RecheckAfter time.Duration // after which the answer can change even if the Pod does not; 0 is never
}

// Of returns the problem of a Pod. It looks only at what [Strip] keeps, so a stripped Pod has the same problem.
func Of(pod *corev1.Pod, now time.Time) Problem {
	kept := &corev1.Pod{ObjectMeta: pod.ObjectMeta}
	Strip(pod, kept)
	p := judge(kept, now)
	if p.Reason == "" {
		return Problem{RecheckAfter: p.RecheckAfter}
	}
	p.Message = clip(oneLine(p.Message))
	return p
}

func judge(pod *corev1.Pod, now time.Time) Problem {
	p := Problem{Since: readySince(pod)}
	scheduled := condition(pod, corev1.PodScheduled)
	container, failure, settles := decisive(pod, now)
	switch {
	case pod.DeletionTimestamp != nil:
		p.Since = pod.DeletionTimestamp.Time
		if p.RecheckAfter = max(0, p.Since.Sub(now)); p.RecheckAfter == 0 {
			p.Reason = NotReady
			p.Message = fmt.Sprintf("Pod %q is terminating, and its grace period is over: %s", pod.Name, heldBy(pod))
		}
	case pod.Status.Phase == corev1.PodFailed:
		if p.RecheckAfter = leftOfMinute(p.Since, now); p.RecheckAfter > 0 {
			p.Reason = Failed
			p.Message = fmt.Sprintf("Pod %q has failed%s%s", pod.Name, colon(pod.Status.Reason), colon(pod.Status.Message))
		}
	case is(scheduled, corev1.ConditionFalse) && slices.Contains(unschedulableReasons, scheduled.Reason):
		p.Reason, p.Since = Unschedulable, scheduled.LastTransitionTime.Time
		p.Message = fmt.Sprintf("Pod %q cannot be scheduled: %s", pod.Name, scheduled.Message)
	case failure != "":
		p.Reason, p.RecheckAfter = failure, settles
		p.Message = fmt.Sprintf("Pod %q, container %q: %s", pod.Name, container.Name, messageOf(container))
		if settles > 0 && IsReady(pod) {
			p.Since = cmp.Or(container.LastTerminationState.Terminated.FinishedAt, container.State.Running.StartedAt).Time
		}
	case !IsReady(pod):
		if p.RecheckAfter = leftOfMinute(p.Since, now); p.RecheckAfter == 0 {
			p.Reason = NotReady
			p.Message = fmt.Sprintf("Pod %q is not ready: %s", pod.Name, waitsFor(pod, scheduled, container))
		}
	}
	return p
}

// unschedulableReasons mean that the scheduler has found no node. A scheduling gate has another reason.
var unschedulableReasons = []string{corev1.PodReasonUnschedulable, corev1.PodReasonSchedulerError}

// IsReady reports whether a Pod is ready.
func IsReady(pod *corev1.Pod) bool {
	return is(condition(pod, corev1.PodReady), corev1.ConditionTrue)
}

// readySince returns when the condition Ready last changed, or when the Pod was created if it has none.
func readySince(pod *corev1.Pod) time.Time {
	ready := cmp.Or(condition(pod, corev1.PodReady), &corev1.PodCondition{})
	return cmp.Or(ready.LastTransitionTime, pod.CreationTimestamp).Time
}

// leftOfMinute returns the time left until a minute after since. It is 0 if since is so far in the future that the
// node's clock must be wrong.
func leftOfMinute(since, now time.Time) time.Duration {
	if left := since.Add(minute).Sub(now); left <= 2*minute {
		return max(0, left)
	}
	return 0
}

// The most that Strip keeps: bytes of a text, and containers that run again after a crash.
const (
	maxMessage  = 1024
	maxImage    = 512
	maxReason   = 128
	maxSettling = 4
)

// Strip copies from pod to kept, for a cache of many Pods, what [Of] and [IsReady] read of its spec and status, now or
// later, and its node and phase: a few kilobytes, however large the Pod is. Of the metadata, they read the name, the
// timestamps of creation and deletion, and the finalizers.
func Strip(pod, kept *corev1.Pod) {
	kept.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
	kept.Status = corev1.PodStatus{Phase: pod.Status.Phase, Reason: brief(pod.Status.Reason), Message: clip(pod.Status.Message)}
	keep := []corev1.PodConditionType{corev1.PodReady, corev1.PodScheduled, corev1.PodReadyToStartContainers}
	if gate := unmet(pod); gate != "" {
		kept.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}}
		keep = append(keep, gate)
	}
	for _, kind := range keep {
		c := condition(pod, kind) // The API server allows several of one type.
		if c == nil || condition(kept, kind) != nil || kind != corev1.PodReady && is(c, corev1.ConditionTrue) {
			continue
		}
		kept.Status.Conditions = append(kept.Status.Conditions, corev1.PodCondition{
			Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: brief(c.Reason), Message: clip(c.Message),
		})
	}
	for _, c := range candidates(pod) {
		statuses := &kept.Status.ContainerStatuses
		if isInit(pod, c) {
			statuses = &kept.Status.InitContainerStatuses
		}
		*statuses = append(*statuses, corev1.ContainerStatus{
			Name: c.Name, Image: text.Clip(c.Image, maxImage), Ready: c.Ready, Started: c.Started,
			State: stripState(c.State), LastTerminationState: stripState(c.LastTerminationState),
		})
	}
}

// candidates returns the containers that decisive can return, now or later: some that run after a crash, the first that
// is not ready, and the first that has failed. Containers after a failed one do not matter.
func candidates(pod *corev1.Pod) (kept []*corev1.ContainerStatus) {
	settling, hasUnready := 0, false
	for c := range containers(pod) {
		switch {
		case failureOf(c) != "":
			return append(kept, c)
		case runsAfterCrash(c) && settling < maxSettling:
			settling++
		case c.Ready || hasUnready:
			continue
		}
		kept = append(kept, c)
		hasUnready = hasUnready || !c.Ready
	}
	return kept
}

// containers returns the containers of a Pod in the order in which they are started.
func containers(pod *corev1.Pod) iter.Seq[*corev1.ContainerStatus] {
	return func(yield func(*corev1.ContainerStatus) bool) {
		for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
			for i := range statuses {
				if !yield(&statuses[i]) {
					return
				}
			}
		}
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
		kept.Running = &corev1.ContainerStateRunning{StartedAt: s.Running.StartedAt}
	}
	if end := s.Terminated; end != nil {
		kept.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: end.ExitCode, Reason: brief(end.Reason), Message: clip(end.Message), FinishedAt: end.FinishedAt,
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

// decisive returns the first container that has failed, and how; settles is how much longer a crash counts if the
// container runs again. If none has failed, it returns the first container that is not ready, or nil. A kubelet calls
// an init container ready when it has succeeded, and a sidecar when it has started.
func decisive(pod *corev1.Pod, now time.Time) (container *corev1.ContainerStatus, failure string, settles time.Duration) {
	for c := range containers(pod) {
		if failure = failureOf(c); failure != "" {
			return c, failure, 0
		}
		if runsAfterCrash(c) {
			if settles = leftOfMinute(c.State.Running.StartedAt.Time, now); settles > 0 {
				return c, CrashLoop, settles
			}
		}
		if container == nil && !c.Ready {
			container = c
		}
	}
	return container, "", 0
}

// runsAfterCrash reports whether a container runs again after it ended with an error. If only its start had failed, it
// is well once it runs.
func runsAfterCrash(c *corev1.ContainerStatus) bool {
	ended := c.LastTerminationState.Terminated
	return c.State.Running != nil && ended != nil && ended.ExitCode != 0 && !isUnstarted(ended)
}

// failureOf returns the reason that a container does not run now; empty if nothing is wrong.
//
// A container that could not be started has a ContainerError, even while its kubelet waits to try again. A container
// whose postStart hook failed was started, so that is a crash. While a container is created but not started, its
// kubelet gives no reason, and its last end counts.
func failureOf(c *corev1.ContainerStatus) string {
	if c.State.Terminated != nil && c.State.Terminated.ExitCode == 0 || c.State.Terminated == nil && c.State.Waiting == nil {
		return ""
	}
	ended := lastEnd(c)
	switch reason := waitingOf(c).Reason; reason {
	case "ContainerCreating", "PodInitializing":
		return ""
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
		"RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed":
		return ImagePullFailed
	case "", "CrashLoopBackOff":
		switch {
		case reason == "" && (ended == nil || ended.ExitCode == 0):
			return ""
		case isUnstarted(ended):
			return ContainerError
		default:
			return CrashLoop
		}
	case "PostStartHookError":
		return CrashLoop
	default: // CreateContainerError, RunContainerError and others
		return ContainerError
	}
}

// isUnstarted reports whether a container ended because it could not be started.
func isUnstarted(ended *corev1.ContainerStateTerminated) bool {
	return ended != nil && (ended.Reason == "StartError" || ended.Reason == "ContainerCannotRun")
}

// lastEnd returns how a container ended last; nil if that is not known.
func lastEnd(c *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	return cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated)
}

// waitingOf returns what a container waits for; the zero value if it does not wait.
func waitingOf(c *corev1.ContainerStatus) corev1.ContainerStateWaiting {
	if c.State.Waiting == nil {
		return corev1.ContainerStateWaiting{}
	}
	return *c.State.Waiting
}

// messageOf says what has failed, if possible in the same words for as long as the failure lasts.
func messageOf(c *corev1.ContainerStatus) string {
	ended, waiting := lastEnd(c), waitingOf(c)
	switch failure := failureOf(c); {
	case failure == ImagePullFailed:
		return fmt.Sprintf("cannot pull image %q%s", c.Image, colon(backOff.ReplaceAllString(waiting.Message, "")))
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

// waitsFor says why a Pod is not ready although nothing in it has failed.
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
		return fmt.Sprintf("container %q %s", container.Name, stateOf(container))
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

// stateOf describes a container that is not ready but has not failed.
func stateOf(c *corev1.ContainerStatus) string {
	switch {
	case c.State.Running != nil && c.Started != nil && !*c.Started:
		return "runs, and has not passed its startup probe"
	case c.State.Running != nil:
		return "runs, and does not pass its readiness probe"
	case c.State.Terminated != nil:
		return "has exited"
	default:
		return "waits" + colon(waitingOf(c).Reason) + colon(waitingOf(c).Message)
	}
}

// heldBy says why a Pod still exists after its grace period.
func heldBy(pod *corev1.Pod) string {
	if len(pod.Finalizers) == 0 {
		return "its node may be lost"
	}
	return "it has finalizers: " + strings.Join(pod.Finalizers[:min(3, len(pod.Finalizers))], ", ")
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

// backOff matches the words before the error that a kubelet quotes while it backs off.
var backOff = regexp.MustCompile(`^Back-off pulling image ".*?"(?:: \w+: )?`)

// colon puts a colon before a text, unless the text is empty.
func colon(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

// oneLine joins the lines of a text.
func oneLine(message string) string { return strings.Join(strings.Fields(message), " ") }
