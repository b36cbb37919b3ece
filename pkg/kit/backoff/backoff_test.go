package backoff_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nicoleh.io/k8s-controller/pkg/kit/backoff"
)

func TestDelay(t *testing.T) {
	var got []time.Duration
	for count := range 12 {
		got = append(got, backoff.Delay(count))
	}
	const s = time.Second
	want := []time.Duration{0, 0, 0, 5 * s, 10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 300 * s, 300 * s, 300 * s}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
	if got := backoff.Delay(1 << 30); got != 300*s {
		t.Errorf("the delay after many: %s", got)
	}
}

func TestDoubled(t *testing.T) {
	for times, want := range []time.Duration{3, 6, 12, 20, 20} {
		if got := backoff.Doubled(3, times, 20); got != want {
			t.Errorf("doubled %d times: %s, want %s", times, got, want)
		}
	}
}
