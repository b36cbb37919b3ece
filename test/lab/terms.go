package lab

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
)

// A Term is the time during which one process led, according to the audit log.
type Term struct {
	Agent       string
	Began, Last time.Time // when it first and last wrote the Lease
}

// Terms returns the terms of all leaders by the Leases of these names. It also returns an
// error for each write that a process made outside of its term, or whose answer came after
// the next term had begun.
func (r Requests) Terms(leases ...string) (terms []Term, err error) {
	for _, e := range r.Resource("leases").Writes() {
		if e.Code >= 400 || !slices.Contains(leases, e.Name) {
			continue
		}
		if agent := AgentOf(e); len(terms) == 0 || terms[len(terms)-1].Agent != agent {
			terms = append(terms, Term{Agent: agent, Began: e.Received})
		}
		terms[len(terms)-1].Last = e.Received
	}
	for _, e := range r.Where(IsWork) {
		if !isInTerm(e, terms) {
			err = errors.Join(err, fmt.Errorf("%s wrote outside of its term: %s %s %s, received at %s and answered with %d at %s; the terms were %+v",
				AgentOf(e), e.Verb, e.Resource, e.Name, e.Received.Format(time.RFC3339Nano), e.Code, e.StageTimestamp.Format(time.RFC3339Nano), terms))
		}
	}
	return terms, err
}

// isInTerm reports whether a request was made, and answered, in a term of its process. Of one
// that a frozen process had not sent completely, the answer comes when its connection ends, or
// when the API server has waited for too long: the code is 500 or 504, and the request has had
// no effect.
func isInTerm(e *cluster.AuditEvent, terms []Term) bool {
	end := e.StageTimestamp
	if e.Code == http.StatusInternalServerError || e.Code == http.StatusGatewayTimeout {
		end = e.Received
	}
	for i, term := range terms {
		if term.Agent == AgentOf(e) && !e.Received.Before(term.Began) && (i == len(terms)-1 || !end.After(terms[i+1].Began)) {
			return true
		}
	}
	return false
}

// AgentOf returns the user agent of a request, up to the slash. It names the process.
func AgentOf(e *cluster.AuditEvent) string {
	agent, _, _ := strings.Cut(e.UserAgent, "/")
	return agent
}

// IsWork reports whether a request is a controller's write, other than for leader election
// and for authorizing requests for its metrics.
func IsWork(e *cluster.AuditEvent) bool {
	return strings.HasPrefix(e.UserAgent, agentPrefix) && len(Requests{e}.Writes()) > 0 &&
		!slices.Contains([]string{"leases", "tokenreviews", "subjectaccessreviews"}, e.Resource)
}
