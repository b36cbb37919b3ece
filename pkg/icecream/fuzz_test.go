package icecream

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// A label value is valid for every name that an object can have, says the same
// for the same name, and tells long names apart.
func FuzzLabelValue(f *testing.F) {
	long := strings.Repeat("sprinkles-", 20)
	for _, seed := range [][2]string{
		{"sundae", "cone"},
		{long + "a", long + "b"},
		{strings.Repeat("a", 63), strings.Repeat("a", 64)},
		{strings.Repeat("a", 51) + "." + strings.Repeat("b", 100), strings.Repeat("a", 51) + ".c"},
		{strings.Repeat("a.b-", 63) + "c", strings.Repeat("1", 253)},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		value := LabelValue(a)
		if LabelValue(a) != value {
			t.Errorf("LabelValue(%q) is not always the same", a)
		}
		if len(value) > validation.LabelValueMaxLength {
			t.Errorf("LabelValue(%q) has %d characters", a, len(value))
		}
		if len(validation.IsDNS1123Subdomain(a)) == 0 {
			if errs := validation.IsValidLabelValue(value); len(errs) > 0 {
				t.Errorf("LabelValue(%q) = %q: %s", a, value, strings.Join(errs, "; "))
			}
		}
		isLong := func(name string) bool { return len(name) > validation.LabelValueMaxLength }
		if a != b && isLong(a) == isLong(b) && LabelValue(b) == value {
			t.Errorf("%q and %q have the same label value %q", a, b, value)
		}
	})
}

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

// Whatever a container's status says, it leads to a trouble that is complete, or
// to none.
func FuzzTroubleOf(f *testing.F) {
	f.Add("ErrImagePull", "not found", int32(0), "", false)
	f.Add("CrashLoopBackOff", "back-off 10s", int32(1), "Error", false)
	f.Add("", "", int32(137), "OOMKilled", true)
	f.Add("CreateContainerConfigError", "", int32(0), "Completed", false)
	f.Fuzz(func(t *testing.T, reason, message string, code int32, end string, isReady bool) {
		p := seen(notReady(time.Minute), waits(reason, message), ended(code, end), func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses[0].Ready = isReady
		})
		switch p.Trouble.Reason {
		case "":
			if p.Trouble != (Trouble{}) {
				t.Errorf("no reason, but %+v", p.Trouble)
			}
		case v1alpha1.ReasonImagePullBackOff, v1alpha1.ReasonContainerError, v1alpha1.ReasonCrashLoopBackOff:
			if p.Trouble.Message == "" || !p.Trouble.Since.Equal(now.Add(-time.Minute)) {
				t.Errorf("trouble %+v", p.Trouble)
			}
		default:
			t.Errorf("trouble for the unknown reason %q", p.Trouble.Reason)
		}
	})
}
