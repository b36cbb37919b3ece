package lab

import (
	"net/http"
	"slices"
	"testing"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
)

func TestPermissionsForRequests(t *testing.T) {
	request := func(verb string, code int) *cluster.AuditEvent {
		return &cluster.AuditEvent{
			Verb:          verb,
			AuditObject:   cluster.AuditObject{Resource: "deployments", APIGroup: "apps"},
			AuditResponse: cluster.AuditResponse{Code: code},
		}
	}
	for _, test := range []struct {
		request *cluster.AuditEvent
		want    []string
	}{
		{request("patch", http.StatusOK), []string{"patch apps/deployments"}},
		{request("patch", http.StatusCreated), []string{"patch apps/deployments", "create apps/deployments"}},
		{request("create", http.StatusCreated), []string{"create apps/deployments"}},
	} {
		if got := permissionsFor(test.request); !slices.Equal(got, test.want) {
			t.Errorf("a %s with code %d takes %q, want %q", test.request.Verb, test.request.Code, got, test.want)
		}
	}
}
