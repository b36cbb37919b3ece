package simulation

import (
	"testing"
	"time"
)

// What the caches of one resource show says nothing of those of another, however their names are alike.
func TestKnew(t *testing.T) {
	now := time.Now()
	p := &Process{least: 1, knows: map[cacheOf][]knowledge{}}
	resources := []string{"icecreams", "workspaces", "deployments", "applications", "pods", "podsets"} // of 9, 10, 11 and 12 letters
	for i, resource := range resources {
		for j, labels := range []string{"", "a=b"} {
			p.knows[cacheOf{resource, labels}] = []knowledge{{now.Add(-time.Minute), 2}, {now.Add(-time.Second), int64(10*(i+1) + j)}}
		}
	}
	for i, resource := range resources {
		for at, want := range map[time.Duration]int64{0: int64(10 * (i + 1)), -time.Second: 2, -time.Hour: 1} {
			if got := p.Knew(resource, now.Add(at)); got != want {
				t.Errorf("%s: at %v it knew %d, want %d", resource, at, got, want)
			}
		}
	}
	if got := p.Knew("work", now); got != 1 {
		t.Errorf("of what has no cache, it knew %d", got)
	}
}
