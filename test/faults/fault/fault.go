// Package fault applies faults to requests on their way to an API server: it loses
// requests, loses or truncates responses, and freezes or cuts watches.
//
// A [Rule] selects requests and says what happens to them. A [Set] holds rules, which can be
// added and removed at any time, and is a middleware: [Set.Handler] returns a handler that
// passes requests on to another one, such as [APIServer]. It must be served by HTTP/1.1,
// where a connection can be closed without breaking other requests.
package fault

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// A Request is what rules know of a request.
type Request struct {
	// Verb is the verb as in an audit log, such as "list", "watch" or "patch".
	Verb string
	// Resource is the resource, with its subresource if there is one, such as
	// "deployments/status". It is empty for a path that is not that of a resource.
	Resource string
}

var resolver = request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// describe returns what rules know of a request.
func describe(in *http.Request) Request {
	info, err := resolver.NewRequestInfo(in)
	if err != nil {
		return Request{Verb: strings.ToLower(in.Method)}
	}
	return Request{Verb: info.Verb, Resource: strings.TrimSuffix(info.Resource+"/"+info.Subresource, "/")}
}

// A Rule selects requests, and says what happens to them. Empty lists select everything.
type Rule struct {
	Verbs     []string
	Resources []string // as in [Request]

	// The rule applies to each request that is selected, or only to one of Every, until it has
	// applied to Count of them. A Count of zero is no limit.
	Every, Count int

	Effect Effect
	Bytes  int           // of Truncate
	After  time.Duration // of Cut
}

// Writes are the verbs that write.
var Writes = []string{"create", "update", "patch", "delete", "deletecollection"}

// selects reports whether the rule is about such requests.
func (r *Rule) selects(in Request) bool {
	among := func(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }
	return among(r.Verbs, in.Verb) && among(r.Resources, in.Resource) && (r.Effect != Cut || in.Verb == "watch")
}

// A Set is the rules that are in force. The zero value has none. It is safe for concurrent
// use.
type Set struct {
	// Log, if not nil, is called with each request when it arrives, and with the rules that
	// apply to it. It must be set before the first request, and be safe for concurrent use.
	Log func(request Request, rules []*Active)

	mu      sync.Mutex
	active  []*Active
	watches []*watch
}

// Active is a rule that is in force.
type Active struct {
	Rule Rule

	set *Set
	// These are protected by the lock of the set.
	selected, applied int
}

// Add puts a rule in force, also for the watches that are open.
func (s *Set) Add(rule Rule) *Active {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &Active{Rule: rule, set: s}
	s.active = append(s.active, a)
	for _, w := range s.watches {
		if rule.Effect == Cut && a.takes(w.request) {
			a.cut(w.cancel)
		}
	}
	return a
}

// Remove ends a rule. Events that it has held back are sent. Requests that it has left
// hanging stay so.
func (a *Active) Remove() {
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	a.set.active = slices.DeleteFunc(a.set.active, func(other *Active) bool { return other == a })
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
	if !a.Rule.selects(r) || a.Rule.Count > 0 && a.applied == a.Rule.Count {
		return false
	}
	a.selected++
	if a.selected%max(a.Rule.Every, 1) != 0 {
		return false
	}
	a.applied++
	return true
}

// cut cancels a watch after the rule's time, unless the rule is no longer in force then.
func (a *Active) cut(cancel context.CancelFunc) {
	time.AfterFunc(a.Rule.After, func() {
		a.set.mu.Lock()
		defer a.set.mu.Unlock()
		if slices.Contains(a.set.active, a) {
			cancel()
		}
	})
}

// Handler returns a handler that applies the rules to requests, and otherwise passes them on
// to next. If several rules apply, they do in the order in which they were added.
func (s *Set) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		r := describe(in)
		handler, rules := next, s.rulesFor(r)
		if s.Log != nil {
			s.Log(r, rules)
		}
		if r.Verb == "watch" {
			handler = s.watching(handler, r)
		}
		for _, a := range slices.Backward(rules) {
			handler = a.wrap(handler)
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
