package main

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// troubles remembers what was told of each copy, and since when nobody wants it. It is safe for concurrent use.
type troubles struct {
	mu     sync.Mutex
	copies map[cache.ObjectName]trouble
	told   map[Problem]int // how many copies have it: one that is about many is told once
}

type trouble struct {
	problem       Problem
	unwantedSince time.Time // zero if it is wanted, or frozen
}

func newTroubles() *troubles {
	return &troubles{copies: map[cache.ObjectName]trouble{}, told: map[Problem]int{}}
}

// unwantedFor returns for how long it is known that nobody wants a copy.
func (t *troubles) unwantedFor(name cache.ObjectName, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if since := t.copies[name].unwantedSince; !since.IsZero() {
		return now.Sub(since)
	}
	return 0
}

// note notes what is wrong with a copy, and reports whether nobody has been told.
func (t *troubles) note(name cache.ObjectName, problem Problem, isUnwanted bool, now time.Time) (isNews bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.copies[name]
	after := trouble{problem: problem}
	if isUnwanted {
		if after.unwantedSince = before.unwantedSince; after.unwantedSince.IsZero() {
			after.unwantedSince = now
		}
	}
	if after == (trouble{}) {
		delete(t.copies, name)
	} else {
		t.copies[name] = after
	}
	if problem == before.problem {
		return false
	}
	if t.told[before.problem]--; t.told[before.problem] <= 0 {
		delete(t.told, before.problem)
	}
	if problem != (Problem{}) {
		t.told[problem]++
	}
	return t.told[problem] == 1
}

// counts returns how many problems there are, by reason.
func (t *troubles) counts() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := map[string]int{}
	for problem := range t.told {
		counts[problem.Reason]++
	}
	return counts
}
