package lab

import (
	"strings"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
)

// A process leads for the first ten seconds, and another one after that.
func TestTerms(t *testing.T) {
	write := func(agent, verb, resource, name string, received, answered, code int) *cluster.AuditEvent {
		return &cluster.AuditEvent{
			UserAgent: agentPrefix + agent + "/v1", Verb: verb,
			AuditObject:   cluster.AuditObject{Resource: resource, Name: name},
			AuditResponse: cluster.AuditResponse{Code: code},
			Received:      time.Unix(int64(received), 0), StageTimestamp: time.Unix(int64(answered), 0),
		}
	}
	leases := Requests{write("1", "update", "leases", "lease", 0, 0, 200), write("2", "update", "leases", "lease", 10, 10, 200)}
	for _, test := range []struct {
		name               string
		agent              string
		received, answered int
		code               int
		isOutside          bool
	}{
		{"in its term", "1", 1, 2, 201, false},
		{"before its term", "2", 1, 2, 201, true},
		{"after its term", "1", 11, 12, 201, true},
		{"carried out after its term", "1", 9, 12, 201, true},
		{"refused after its term", "1", 9, 12, 409, true},
		{"cut off after its term", "1", 9, 12, 500, false},
		{"begun and cut off after its term", "1", 11, 12, 500, true},
		{"while nobody else leads", "2", 11, 100, 201, false},
		{"nobody's", "3", 1, 2, 201, true},
	} {
		request := write(test.agent, "create", "deployments", "", test.received, test.answered, test.code)
		terms, err := append(leases[:2:2], request).Terms("lease")
		if len(terms) != 2 || (err != nil) != test.isOutside || err != nil && !strings.Contains(err.Error(), "outside of its term") {
			t.Errorf("%s: got %d terms and the error %v", test.name, len(terms), err)
		}
	}
}
