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

// Requests are requests from the API server's audit log. Each request is there once: a
// watch from when it began, any other request from when it was answered.
type Requests []*cluster.AuditEvent

// Requests returns all requests that anyone has made so far. Each call reads only the part
// of the audit log that is new since the previous call: the log is long, and tests that
// wait for a request call Requests repeatedly.
func (l *Lab) Requests(t testing.TB) Requests {
	t.Helper()
	requests, err := l.AllRequests()
	if err != nil {
		t.Fatal(err)
	}
	return requests
}

// AllRequests is Requests outside of a test.
func (l *Lab) AllRequests() (Requests, error) {
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

// Requests returns all requests in the namespace that anyone has made so far.
func (n *Namespace) Requests(t testing.TB) Requests {
	t.Helper()
	return n.Lab.Requests(t).In(n.Name)
}

// In returns the requests in a namespace.
func (r Requests) In(namespace string) Requests {
	return r.Where(func(e *cluster.AuditEvent) bool { return e.Namespace == namespace })
}

// Where returns the requests for which matches returns true.
func (r Requests) Where(matches func(e *cluster.AuditEvent) bool) Requests {
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
	return r.Where(func(e *cluster.AuditEvent) bool { return e.User == user })
}

// Since returns the requests that arrived at that time or later.
func (r Requests) Since(mark time.Time) Requests {
	return r.Where(func(e *cluster.AuditEvent) bool { return !e.Received.Before(mark.Truncate(time.Microsecond)) })
}

// Resource returns the requests for a resource or subresource, such as "icecreams/status".
func (r Requests) Resource(resource string) Requests {
	return r.Where(func(e *cluster.AuditEvent) bool { return resourceOf(e) == resource })
}

// Writes returns the requests that are not reads.
func (r Requests) Writes() Requests {
	return r.Where(func(e *cluster.AuditEvent) bool { return !slices.Contains([]string{"get", "list", "watch"}, e.Verb) })
}

// Refused returns the requests that were answered with an error.
func (r Requests) Refused() Requests {
	return r.Where(func(e *cluster.AuditEvent) bool { return e.Code >= 400 })
}

// Code returns the requests that were answered with an HTTP status code.
func (r Requests) Code(code int) Requests {
	return r.Where(func(e *cluster.AuditEvent) bool { return e.Code == code })
}

// ByObject returns the number of requests by the name of the object.
func (r Requests) ByObject() map[string]int {
	counts := map[string]int{}
	for _, e := range r {
		counts[e.Name]++
	}
	return counts
}

// String returns the number of requests of each kind, such as "300 create deployments 201,
// 1 list pods 200".
func (r Requests) String() string {
	counts := map[string]int{}
	for _, e := range r {
		counts[fmt.Sprintf("%s %s %d", e.Verb, resourceOf(e), e.Code)]++
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[kind], kind))
	}
	if len(parts) == 0 {
		return "no requests"
	}
	return strings.Join(parts, ", ")
}

// lines returns one line of text per request.
func (r Requests) lines() string {
	var out strings.Builder
	for _, e := range r {
		fmt.Fprintf(&out, "%s %s %s %s: %d after %s\n", e.Received.UTC().Format("15:04:05.000"), e.Verb, resourceOf(e), e.Name, e.Code, e.StageTimestamp.Sub(e.Received).Round(time.Millisecond))
	}
	return out.String()
}

// resourceOf returns the resource of a request, with its subresource if there is one.
func resourceOf(e *cluster.AuditEvent) string {
	if e.Subresource == "" {
		return e.Resource
	}
	return e.Resource + "/" + e.Subresource
}
