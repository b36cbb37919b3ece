package fault

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A Set is the rules that are in force. The zero value has none. It is safe for concurrent
// use.
type Set struct {
	// Log, if not nil, is called with each request when it arrives, and with the rules that
	// apply to it. It must be set before the first request, and be safe for concurrent use.
	Log func(request Request, rules []*Active)

	mu      sync.Mutex
	active  []*Active
	streams []*stream
}

// Active is a rule that is in force.
type Active struct {
	Rule Rule

	set    *Set
	random *rand.Rand
	since  time.Time

	// These are protected by the lock of the set.
	applied int
	removed bool
}

// Add puts a rule in force, also for the watches that are open. If several rules apply to a
// request, they do in the order in which they were added.
func (s *Set) Add(rule Rule) *Active {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &Active{Rule: rule, set: s, random: rand.New(rand.NewPCG(rule.Seed, 0)), since: time.Now()}
	s.active = append(s.active, a)
	for _, stream := range s.streams {
		if a.takes(stream.request) {
			stream.apply(a)
		}
	}
	return a
}

// Remove ends a rule. Events that it has held back are sent. Requests that it has left
// hanging stay so.
func (a *Active) Remove() {
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	a.removed = true
	a.set.active = slices.DeleteFunc(a.set.active, func(other *Active) bool { return other == a })
	for _, stream := range a.set.streams {
		stream.forget(a)
	}
}

// Applied returns how many requests the rule has been applied to so far.
func (a *Active) Applied() int {
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	return a.applied
}

// takes reports whether the rule applies to a request, and counts. The caller must hold the
// lock.
func (a *Active) takes(r Request) bool {
	if !a.Rule.selects(r) {
		return false
	}
	if a.Rule.Count > 0 && a.applied == a.Rule.Count {
		return false
	}
	if a.Rule.Probability > 0 && a.random.Float64() >= a.Rule.Probability {
		return false
	}
	a.applied++
	return true
}

// Handler returns a handler that applies the rules to requests, and otherwise passes them on
// to next.
func (s *Set) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		r := describe(in)
		handler, rules := next, s.rulesFor(r)
		if s.Log != nil {
			s.Log(r, rules)
		}
		if r.Verb == "watch" {
			handler = s.watching(handler, r, rules)
		}
		for _, a := range slices.Backward(rules) {
			handler = a.Rule.wrap(handler)
		}
		handler.ServeHTTP(out, in)
	})
}

// rulesFor returns the rules that apply to a request.
func (s *Set) rulesFor(r Request) (rules []*Active) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.active {
		if a.takes(r) {
			rules = append(rules, a)
		}
	}
	return rules
}
