package lab

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
)

// Requests are requests to the API server, as its audit log has them. Each one
// is there once: a watch when it began, anything else when it was answered.
type Requests []cluster.AuditEvent

// Requests returns all requests that anybody has made so far. The audit log is read
// once and not once for each call: it is long, and tests that wait for something to
// be in it call this every few seconds.
func (l *Lab) Requests(t testing.TB) Requests {
	t.Helper()
	requests, err := l.allRequests()
	if err != nil {
		t.Fatal(err)
	}
	return requests
}

func (l *Lab) allRequests() (Requests, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	events, err := l.audit.Next()
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		if (e.Verb == "watch") == (e.Stage == "ResponseStarted") {
			l.requests = append(l.requests, e)
		}
	}
	return slices.Clip(l.requests), nil
}

// Requests returns the requests in the namespace so far.
func (n *Namespace) Requests(t testing.TB) Requests {
	t.Helper()
	return n.Lab.Requests(t).In(n.Name)
}

// In returns the requests in a namespace.
func (r Requests) In(namespace string) Requests {
	return r.Where(func(e cluster.AuditEvent) bool { return e.Namespace == namespace })
}

// Where returns those that match.
func (r Requests) Where(matches func(e cluster.AuditEvent) bool) Requests {
	var found Requests
	for _, e := range r {
		if matches(e) {
			found = append(found, e)
		}
	}
	return found
}

// By returns the requests of a user.
func (r Requests) By(user string) Requests {
	return r.Where(func(e cluster.AuditEvent) bool { return e.User == user })
}

// Since returns the requests that arrived at that time or later.
func (r Requests) Since(mark time.Time) Requests {
	return r.Where(func(e cluster.AuditEvent) bool { return !e.Received.Before(mark.Truncate(time.Microsecond)) })
}

// Until returns the requests that arrived before that time.
func (r Requests) Until(mark time.Time) Requests {
	return r.Where(func(e cluster.AuditEvent) bool { return e.Received.Before(mark.Truncate(time.Microsecond)) })
}

// Resource returns those to a resource, such as "icecreams/status".
func (r Requests) Resource(resource string) Requests {
	return r.Where(func(e cluster.AuditEvent) bool { return resourceOf(e) == resource })
}

// Writes returns those that ask for a change.
func (r Requests) Writes() Requests {
	return r.Where(func(e cluster.AuditEvent) bool { return !slices.Contains([]string{"get", "list", "watch"}, e.Verb) })
}

// Refused returns those that were answered with an error.
func (r Requests) Refused() Requests {
	return r.Where(func(e cluster.AuditEvent) bool { return e.Code >= 400 })
}

// Code returns those that were answered with that status code.
func (r Requests) Code(code int) Requests {
	return r.Where(func(e cluster.AuditEvent) bool { return e.Code == code })
}

// ByObject counts the requests for each name of an object.
func (r Requests) ByObject() map[string]int {
	counts := map[string]int{}
	for _, e := range r {
		counts[e.Name]++
	}
	return counts
}

// String counts the requests: "300 create deployments 201, 1 list pods 200".
func (r Requests) String() string {
	counts := map[string]int{}
	for _, e := range r {
		counts[fmt.Sprintf("%s %s %d", e.Verb, resourceOf(e), e.Code)]++
	}
	var words []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%d %s", counts[kind], kind))
	}
	if len(words) == 0 {
		return "no request"
	}
	return strings.Join(words, ", ")
}

// lines has a line for each request.
func (r Requests) lines() string {
	var out strings.Builder
	for _, e := range r {
		fmt.Fprintf(&out, "%s %s %s %s: %d after %s\n", e.Received.UTC().Format("15:04:05.000"), e.Verb, resourceOf(e), e.Name, e.Code, e.StageTimestamp.Sub(e.Received).Round(time.Millisecond))
	}
	return out.String()
}

func resourceOf(e cluster.AuditEvent) string {
	if e.Subresource == "" {
		return e.Resource
	}
	return e.Resource + "/" + e.Subresource
}
