package backoff_test

import (
	"testing"
	"time"

	"nicoleh.io/k8s-controller/pkg/kit/backoff"
	"nicoleh.io/k8s-controller/pkg/kit/difftest"
)

func TestDelay(t *testing.T) {
	var got []time.Duration
	for count := range 12 {
		got = append(got, backoff.Delay(count))
	}
	const s = time.Second
	difftest.Equal(t, "delays", []time.Duration{0, 0, 0, 5 * s, 10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 300 * s, 300 * s, 300 * s}, got)
	difftest.Equal(t, "the delay after many", 300*s, backoff.Delay(1<<30))
}

func TestDoubled(t *testing.T) {
	for times, want := range []time.Duration{3, 6, 12, 20, 20} {
		if got := backoff.Doubled(3, times, 20); got != want {
			t.Errorf("doubled %d times: %s, want %s", times, got, want)
		}
	}
}
