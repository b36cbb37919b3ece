package lab

import (
	"strings"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
)

// A process leads for the first ten seconds, and another one after that.
func TestTerms(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	leases := Requests{
		{UserAgent: agentPrefix + "1/v1", Verb: "update", Resource: "leases", Name: "lease", Code: 200, Received: at(0), StageTimestamp: at(0)},
		{UserAgent: agentPrefix + "2/v1", Verb: "update", Resource: "leases", Name: "lease", Code: 200, Received: at(10), StageTimestamp: at(10)},
	}
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
		request := &cluster.AuditEvent{
			UserAgent: agentPrefix + test.agent + "/v1", Verb: "create", Resource: "deployments",
			Code: test.code, Received: at(test.received), StageTimestamp: at(test.answered),
		}
		terms, err := append(leases[:2:2], request).Terms("lease")
		if len(terms) != 2 || (err != nil) != test.isOutside || err != nil && !strings.Contains(err.Error(), "outside of its term") {
			t.Errorf("%s: got %d terms and the error %v", test.name, len(terms), err)
		}
	}
}
