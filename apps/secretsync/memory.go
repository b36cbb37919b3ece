package main

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// memory is what a process remembers of a copy besides its writes. The zero memory remembers
// nothing.
type memory struct {
	Problem   Problem   // the last one, which has been recorded in an event
	GoneSince time.Time // since when the source is known to be gone; zero if it is not
	Brake     string    // why deletions are held since this process has started; empty if this one is not
	Hold      Hold      // what holds the deletion now
	Confirmed Hold      // what somebody has confirmed the deletion in spite of
}

// memories are those of all copies. They are safe for concurrent use.
type memories struct {
	mu    sync.Mutex
	all   map[cache.ObjectName]memory
	told  map[string]int  // how many copies have the problem that one event tells
	drawn map[Hold]string // the id of each hold, from when it is told until it is confirmed
}

func newMemories() *memories {
	return &memories{all: map[cache.ObjectName]memory{}, told: map[string]int{}, drawn: map[Hold]string{}}
}

// of returns the memory of a copy.
func (m *memories) of(name cache.ObjectName) memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[name]
}

// change changes the memory of a copy, and reports whether its problem is news.
func (m *memories) change(name cache.ObjectName, change func(*memory)) (isNews bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	is := m.all[name]
	before := eventFor(name, is.Problem)
	change(&is)
	after := eventFor(name, is.Problem)
	isNews = after != "" && after != before && m.told[after] == 0
	m.untell(before)
	if after != "" {
		m.told[after]++
	}
	if is == (memory{}) {
		delete(m.all, name)
	} else {
		m.all[name] = is
	}
	return isNews
}

// untell counts one copy less of the event. The caller holds mu.
func (m *memories) untell(event string) {
	if m.told[event]--; m.told[event] <= 0 {
		delete(m.told, event)
	}
}

// eventFor identifies the event that tells a problem. All deletions that are held for one reason
// are told once, and so is a mark that is missing. The API server's messages vary, so of a refusal
// only the reason counts.
func eventFor(name cache.ObjectName, problem Problem) string {
	switch problem.Reason {
	case "":
		return ""
	case ReasonHeld:
		return problem.Reason + " " + problem.Message
	case ReasonMarkMissing:
		return problem.Reason + " " + name.Name
	}
	return problem.Reason + " " + name.String()
}

// problems returns how many copies have a problem, by reason.
func (m *memories) problems() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := map[string]int{}
	for _, is := range m.all {
		counts[is.Problem.Reason]++
	}
	return counts
}

// idOf returns the id of a hold, with which it can be confirmed.
func (m *memories) idOf(hold Hold) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.drawn[hold] == "" {
		m.drawn[hold] = drawID()
	}
	return m.drawn[hold]
}

// confirm notes that somebody has confirmed the hold with that id, and returns the copies that are
// held by it now.
func (m *memories) confirm(id string) (names []cache.ObjectName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for hold, drawn := range m.drawn {
		if drawn != id {
			continue
		}
		delete(m.drawn, hold)
		for name, is := range m.all {
			if is.Hold == hold {
				m.untell(eventFor(name, is.Problem))
				is.Problem, is.Hold, is.Confirmed = Problem{}, "", hold
				m.all[name] = is
				names = append(names, name)
			}
		}
	}
	slices.SortFunc(names, func(a, b cache.ObjectName) int { return strings.Compare(a.String(), b.String()) })
	return names
}
