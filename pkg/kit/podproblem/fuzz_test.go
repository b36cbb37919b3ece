package podproblem

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/pkg/kittest"
)

// A kubelet's words about an image are worth the same before and during a
// back-off, and are kept whole.
func FuzzImageMessage(f *testing.F) {
	for _, seed := range []string{
		"", "not found", `failed to pull and unpack image "x:1": not found`, "Back-off pulling image", "ErrImagePull: ErrImagePull: x", "\xff",
	} {
		f.Add(seed)
	}
	says := func(reason, message string) string {
		return Of(newPod(notReady(time.Minute), kittest.Waits(reason, message)), now).Message
	}
	f.Fuzz(func(t *testing.T, message string) {
		if strings.Contains(message, "ErrImagePull: ") || strings.HasPrefix(message, "Back-off") || len(message) > 512 || !utf8.ValidString(message) {
			return
		}
		got, backingOff := says("ErrImagePull", message), says("ImagePullBackOff", `Back-off pulling image "vanilla:1": ErrImagePull: `+message)
		if got != backingOff {
			t.Errorf("%q, but %q during back-off", got, backingOff)
		}
		if !strings.HasSuffix(got, oneLine(message)) {
			t.Errorf("%q has lost some of %q", got, message)
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
		}), now)
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
