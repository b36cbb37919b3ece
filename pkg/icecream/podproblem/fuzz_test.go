package podproblem

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/pkg/kittest"
)

// A kubelet's words about an image are worth the same before and during a
// back-off, and are kept whole.
func FuzzPullError(f *testing.F) {
	for _, seed := range []string{
		"", "not found", `failed to pull and unpack image "x:1": not found`, "Back-off pulling image", "ErrImagePull: ErrImagePull: x", "\xff",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, message string) {
		got := pullError(message)
		if got != "" && !strings.HasPrefix(got, ": ") {
			t.Errorf("pullError(%q) = %q", message, got)
		}
		if strings.Contains(message, "ErrImagePull: ") || strings.HasPrefix(message, "Back-off") {
			return
		}
		backingOff := pullError(`Back-off pulling image "vanilla:1": ErrImagePull: ` + message)
		if got != backingOff {
			t.Errorf("pullError(%q) = %q, but %q during back-off", message, got, backingOff)
		}
		if !strings.HasSuffix(got, message) {
			t.Errorf("pullError(%q) = %q has lost something", message, got)
		}
	})
}

// Whatever a container's status says, it leads to a problem that is complete, or
// to none.
func FuzzOf(f *testing.F) {
	f.Add("ErrImagePull", "not found", int32(0), "", false)
	f.Add("CrashLoopBackOff", "back-off 10s", int32(1), "Error", false)
	f.Add("", "", int32(137), "OOMKilled", true)
	f.Add("CreateContainerConfigError", "", int32(0), "Completed", false)
	f.Fuzz(func(t *testing.T, reason, message string, code int32, end string, isReady bool) {
		p := Of(newPod(notReady(time.Minute), kittest.Waits(reason, message), kittest.Ended(code, end), func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses[0].Ready = isReady
		}))
		if p.Reason == "" {
			if p != (Problem{}) {
				t.Errorf("no reason, but %+v", p)
			}
			return
		}
		if !slices.Contains(Reasons(), p.Reason) || p.Message == "" || !p.Since.Equal(now.Add(-time.Minute)) {
			t.Errorf("problem %+v", p)
		}
	})
}
