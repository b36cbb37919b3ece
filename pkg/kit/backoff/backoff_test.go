package backoff_test

import (
	"testing"
	"time"

	"nicoleh.io/k8s-controller/pkg/kit/backoff"
)

func TestMinRequeue(t *testing.T) {
	for _, test := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {0, 1, 1}, {1, 0, 1}, {1, 2, 1}, {2, 1, 1}} {
		if got := backoff.MinRequeue(test.a, test.b); got != test.want {
			t.Errorf("of %d and %d: %d, want %d", test.a, test.b, got, test.want)
		}
	}
}
