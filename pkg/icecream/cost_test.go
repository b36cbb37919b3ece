package icecream

import (
	"fmt"
	"testing"

	"nicoleh.io/k8s-controller/pkg/kit/children"
)

// An event costs one look at everything that is known about its Icecream, and
// most of them lead to nothing.
func BenchmarkDecide(b *testing.B) {
	o := world(newIcecream(), made(b, newIcecream()))
	if d := decide(o); d.Verdict != children.Converged {
		b.Fatalf("%+v, want Converged", intentOf(d))
	}
	b.ReportAllocs()
	for b.Loop() {
		decide(o)
	}
}

func BenchmarkStatus(b *testing.B) {
	for _, pods := range []int{3, 5000} {
		b.Run(fmt.Sprintf("%d Pods", pods), func(b *testing.B) {
			o := crowd(b, pods)
			d := decide(o)
			o.Icecream.Status, _ = statusOf(o, d, Outcome{})
			b.ReportAllocs()
			for b.Loop() {
				statusOf(o, d, Outcome{})
			}
		})
	}
}

func BenchmarkPodOf(b *testing.B) {
	pod := CachePod(newPod())
	b.ReportAllocs()
	for b.Loop() {
		PodOf(pod)
	}
}

// Ceilings with some room; what they are to catch is a cost of another order.
func TestCost(t *testing.T) {
	small, large := world(newIcecream(), made(t, newIcecream())), crowd(t, 5000)
	for _, o := range []*Observed{&small, &large} {
		o.Icecream.Status, _ = statusOf(*o, decide(*o), Outcome{})
	}
	few, many := Assess(small), Assess(large)
	pod := CachePod(newPod())
	tests := []struct {
		name  string
		run   func()
		limit float64
	}{
		{"assessing 3 Pods", func() { Assess(small) }, 80},
		{"assessing 5,000 Pods on as many nodes", func() { Assess(large) }, 5400},
		{"deciding that nothing is to be done", func() { Decide(few) }, 400},
		{"deciding that for 5,000 Pods", func() { Decide(many) }, 400},
		{"the status of 3 Pods", func() { statusAfter(few, Decision{}, Outcome{}) }, 80},
		{"the status of 5,000 Pods on as many nodes", func() { statusAfter(many, Decision{}, Outcome{}) }, 500},
		{"reading a Pod that is well", func() { PodOf(pod) }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if allocs := testing.AllocsPerRun(20, tt.run); allocs > tt.limit {
				t.Errorf("%v allocations, want at most %v", allocs, tt.limit)
			}
		})
	}
}
