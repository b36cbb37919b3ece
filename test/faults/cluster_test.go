package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	localcluster "nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
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
	lost := r.breaks(fault.Rule{Verbs: []string{"watch", "list"}, Effect: fault.ResetBefore})
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

// A namespace takes long to end. The controller, which serves all namespaces, creates
// nothing in it and does not try for ever.
func TestNamespaceIsTerminating(t *testing.T) {
	r := &run{Namespace: shared.NewNamespace(t)}
	l := r.Lab
	r.Controller = l.StartController(t, "-icecream-stall-after=3s")
	r.create(t)
	r.EventuallyReady(t, name)
	configMaps := l.Kube.CoreV1().ConfigMaps(r.Name)
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/held"}}}
	if _, err := configMaps.Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.edit(t, 1)
	if err := l.Kube.CoreV1().Namespaces().Delete(t.Context(), r.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.Eventually(t, "the Icecream is gone", func(ctx context.Context) error {
		_, err := r.Icecreams().Get(ctx, name, metav1.GetOptions{})
		return isGone(err)
	})
	r.comesToRest(t)

	release := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := configMaps.Patch(t.Context(), "held", types.MergePatchType, release, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	r.Eventually(t, "the namespace is gone", func(ctx context.Context) error {
		_, err := l.Kube.CoreV1().Namespaces().Get(ctx, r.Name, metav1.GetOptions{})
		return isGone(err)
	})
	made := r.requests(t).In(r.Name)
	t.Logf("requests: %s", made)
	if created := made.Resource("deployments").Where(isAccepted("create")); len(created) != 1 {
		t.Errorf("%d Deployments were created, want 1", len(created))
	}
	const budget = 40
	if len(made) > budget {
		t.Errorf("the controller made %d requests, more than %d", len(made), budget)
	}
}

// isGone returns nil if an error says that an object does not exist.
func isGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		return errors.New("it still exists")
	}
	return err
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

// A quota does not allow the Deployment, until it is deleted.
func TestQuotaIsExceeded(t *testing.T) {
	t.Parallel()
	r := begin(t)
	r.StartQuota(t, "none", "count/deployments.apps=0")
	r.create(t)
	r.EventuallyIcecream(t, name, "says that its Deployment is refused", func(ice *v1alpha1.Icecream) error {
		ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Reason != v1alpha1.ReasonDeploymentRefused {
			return fmt.Errorf("condition Ready is %+v", ready)
		}
		return nil
	})
	r.editAll(t)
	r.Kubectl(t, "delete", "quota", "none")
	r.last = time.Now()
	r.recovers(t, 80)
}
