package icecream

import (
	"fmt"
	"math"
	"testing"

	"nicoleh.io/k8s-controller/pkg/kit/children"
)

// An event costs one look at everything that is known about its Icecream, and
// most of them lead to nothing.
func BenchmarkDecide(b *testing.B) {
	for name, o := range map[string]Observed{
		"as before":                 known(world(newIcecream(), made(b, newIcecream()))),
		"as before, with resources": known(world(specs["resources"], made(b, specs["resources"]))),
		"not compared before":       world(newIcecream(), made(b, newIcecream())),
	} {
		b.Run(name, func(b *testing.B) {
			if d := decide(o); d.Verdict != children.Converged {
				b.Fatalf("%+v, want Converged", intentOf(d))
			}
			b.ReportAllocs()
			for b.Loop() {
				decide(o)
			}
		})
	}
}

// known returns what is observed by a process that has seen the same before, and has
// reported it.
func known(o Observed) Observed {
	a := Assess(o)
	d := Decide(a)
	now, _ := Remember(a, d, Outcome{})
	o.Memory = now.Memory
	o.Icecream = o.Icecream.DeepCopy()
	o.Icecream.Status, _ = Status(a, now, d, Outcome{})
	return o
}

func BenchmarkStatus(b *testing.B) {
	for _, pods := range []int{3, 5000} {
		b.Run(fmt.Sprintf("%d Pods", pods), func(b *testing.B) {
			o := known(crowd(b, pods))
			d := decide(o)
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

// Ceilings with some room; what they are to catch is a cost of another order. Nothing is
// built or converted for an Icecream that is as it was before.
func TestCost(t *testing.T) {
	unknown := world(newIcecream(), made(t, newIcecream()))
	small, large := known(unknown), known(crowd(t, 5000))
	asking := known(world(specs["resources"], made(t, specs["resources"])))
	few, many := Assess(small), Assess(large)
	pod := CachePod(newPod())
	tests := []struct {
		name  string
		run   func()
		limit float64
	}{
		{"assessing 3 Pods", func() { Assess(small) }, 2},
		{"assessing 5,000 Pods on as many nodes", func() { Assess(large) }, 2},
		{"deciding for the first time that nothing is to be done", func() { decide(unknown) }, 100},
		{"deciding that nothing is to be done", func() { decide(small) }, 10},
		{"deciding that for 5,000 Pods", func() { decide(large) }, 10},
		{"deciding that with resources", func() { decide(asking) }, 25},
		{"the status of 3 Pods", func() { statusAfter(few, Decision{}, Outcome{}) }, 15},
		{"the status of 5,000 Pods on as many nodes", func() { statusAfter(many, Decision{}, Outcome{}) }, 25},
		{"reading a Pod that is well", func() { PodOf(pod) }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// The best of some averages: the race detector has a sync.Pool drop what it is given.
			fewest := math.Inf(1)
			for range 10 {
				fewest = min(fewest, testing.AllocsPerRun(20, tt.run))
			}
			if fewest > tt.limit {
				t.Errorf("%v allocations, want at most %v", fewest, tt.limit)
			}
		})
	}
}
