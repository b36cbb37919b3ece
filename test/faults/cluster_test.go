package faults

import (
	"testing"
	"time"

	localcluster "nicoleh.io/k8s-controller/hack/local-cluster/cluster"
)

// The API server is killed in the middle of the work, and comes back.
func TestAPIServerIsKilled(t *testing.T) {
	r := begin(t)
	r.create(t)
	r.EventuallyReady(t, name)
	r.editAll(t)
	r.restartAPIServer(t)
	r.recovers(t, 60)
}

// restartAPIServer kills the API server and starts it again.
func (r *run) restartAPIServer(t *testing.T) {
	t.Helper()
	if err := r.Lab.KillComponent(localcluster.APIServer); err != nil {
		t.Fatal(err)
	}
	if err := r.Lab.StartComponent(t.Context(), localcluster.APIServer); err != nil {
		t.Fatal(err)
	}
	r.last = time.Now()
}
