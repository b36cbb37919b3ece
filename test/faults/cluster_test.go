package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	localcluster "nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/test/faults/fault"
	"nicoleh.io/k8s-controller/test/lab"
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

// The watches are interrupted, and cannot be resumed: etcd has been compacted, and the API
// server has forgotten what it knew.
func TestEtcdIsCompacted(t *testing.T) {
	r := begin(t)
	r.create(t)
	r.EventuallyReady(t, name)
	lost := r.breaks(fault.Rule{Verbs: []string{"watch", "list"}, Effect: fault.CloseBefore})
	cut := r.breaks(fault.Rule{Effect: fault.Cut})
	r.applied(t, lost, 3)
	r.editAll(t)
	if err := r.Lab.CompactEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.restartAPIServer(t)
	mark := time.Now()
	r.heals(lost, cut)
	r.Eventually(t, "a watch could not be resumed", func(context.Context) error {
		if made := r.Requests(t).By(r.Controller.User).Since(mark).Resource("icecreams"); len(made) < 2 {
			return fmt.Errorf("the requests for Icecreams are %s", made)
		}
		return nil
	})
	r.recovers(t, 40)
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

// The controller's permissions are revoked, and granted again.
func TestPermissionsAreRevoked(t *testing.T) {
	t.Parallel()
	r := begin(t)
	r.create(t)
	r.EventuallyReady(t, name)
	bindings := r.Lab.Kube.RbacV1().RoleBindings(r.Name)
	binding, err := bindings.Get(t.Context(), lab.ServiceAccount, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := bindings.Delete(t.Context(), binding.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.editAll(t)
	r.heals(r.breaks(fault.Rule{Effect: fault.Cut})) // watches that are open would go on without permission
	r.Eventually(t, "requests are forbidden", func(context.Context) error {
		if refused := r.Lab.Requests(t).By(r.Controller.User).Code(http.StatusForbidden); len(refused) == 0 {
			return errors.New("none is")
		}
		return nil
	})
	again := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: binding.Name}, RoleRef: binding.RoleRef, Subjects: binding.Subjects}
	if _, err := bindings.Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.last = time.Now()
	r.recovers(t, 80)
}
