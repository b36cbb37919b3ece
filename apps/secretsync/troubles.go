package main

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// troubles remembers the problem of each copy, and since when a copy is unwanted. It is safe for concurrent use.
type troubles struct {
	mu     sync.Mutex
	copies map[cache.ObjectName]trouble
	told   map[Problem]int // how many copies have it: a problem of many copies is reported once
}

type trouble struct {
	problem  Problem
	unwanted string    // why it is unwanted; empty if it is wanted, or frozen
	since    time.Time // when it became unwanted for that reason
}

func newTroubles() *troubles {
	return &troubles{copies: map[cache.ObjectName]trouble{}, told: map[Problem]int{}}
}

// unwanted returns why a copy is unwanted, and how long that has been known.
func (t *troubles) unwanted(name cache.ObjectName, now time.Time) (why string, known time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	is := t.copies[name]
	if is.unwanted == "" {
		return "", 0
	}
	return is.unwanted, now.Sub(is.since)
}

// note remembers what is wrong with a copy, and reports whether that is new.
func (t *troubles) note(name cache.ObjectName, problem Problem, unwanted string, now time.Time) (isNew bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.copies[name]
	after := trouble{problem: problem, unwanted: unwanted}
	switch unwanted {
	case "":
	case before.unwanted:
		after.since = before.since
	default:
		after.since = now
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

// counted is what troubles are counted by.
type counted struct {
	namespace string // of the copies; everywhere if they can be in several
	reason    string // of the event
}

// everywhere stands for all namespaces. No namespace has that name.
const everywhere = "*"

// counts returns how many copies have each problem, by namespace. A problem of the source namespace counts as everywhere.
func (t *troubles) counts() map[counted]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := map[counted]int{}
	for name, is := range t.copies {
		if is.problem == (Problem{}) {
			continue
		}
		where := name.Namespace
		if about := is.problem.About; about.Kind == "Namespace" && about.Name != where {
			where = everywhere
		}
		counts[counted{where, is.problem.Reason}]++
	}
	return counts
}
