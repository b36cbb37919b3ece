package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// When the CustomResourceDefinition is deleted, and created again later, the controller
// recovers on its own. Until then its log says what it lacks.
func TestDefinitionMadeAnew(t *testing.T) {
	t.Parallel()
	l := NewLab(t, lab.Options{})
	c := l.StartController(t, "-bind-address=127.0.0.1:0", "-insecure-bind-address=127.0.0.1:0")
	n := l.NewNamespace(t)
	n.Controller = c
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "vanilla")

	crd := l.Path(crdFile)
	n.Kubectl(t, "delete", "-f", crd)
	eventuallyFailsToWatch(t, n, "could not find the requested resource")
	requireProbes(t, c, http.StatusOK, http.StatusOK)

	n.Kubectl(t, "apply", "-f", crd)
	n.Kubectl(t, "wait", `--for=jsonpath={.status.conditions[?(@.type=="Established")].status}=True`, "crd/icecreams.controller.nicoleh.io")
	established := time.Now()
	n.Create(t, "chocolate", v1alpha1.IcecreamSpec{})
	eventuallyHasDeployment(t, n, "chocolate")
	requireRecoveredSoon(t, established)
	n.EventuallyReady(t, "chocolate")
}

// When a permission is revoked, and granted again later, the controller recovers on its
// own. Until then, its log says what it lacks, and its metrics show which cache is cut off.
func TestPermissionRevokedAndGrantedAgain(t *testing.T) {
	t.Parallel()
	l := NewLab(t, lab.Options{})
	c := l.StartController(t, "-bind-address=127.0.0.1:0", "-insecure-bind-address=127.0.0.1:0")
	n := l.NewNamespace(t)
	n.Controller = c
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "vanilla")
	if err := l.LearnPrivileges(); err != nil {
		t.Fatal(err)
	}

	bindings := l.Kube.RbacV1().ClusterRoleBindings()
	binding, err := bindings.Get(t.Context(), lab.ServiceAccount, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := bindings.Delete(t.Context(), binding.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	outage(t, l, time.Second) // this ends the watches, which would otherwise go on without permission
	eventuallyFailsToWatch(t, n, "is forbidden")
	version, edits := cacheVersion(t, c, "icecreams"), 0
	n.Consistently(t, "the cache does not learn of edits", 5*time.Second, func(context.Context) error {
		edits++
		n.Kubectl(t, "annotate", "--overwrite", "icecream", "vanilla", "edits="+strconv.Itoa(edits))
		if now := cacheVersion(t, c, "icecreams"); now != version {
			return fmt.Errorf("its version was %v, and is %v", version, now)
		}
		return nil
	})
	requireProbes(t, c, http.StatusOK, http.StatusOK)

	recreated := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: binding.Name, Labels: binding.Labels}, RoleRef: binding.RoleRef, Subjects: binding.Subjects}
	if recreated, err = bindings.Create(t.Context(), recreated, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	granted := time.Now()
	n.Create(t, "chocolate", v1alpha1.IcecreamSpec{})
	eventuallyHasDeployment(t, n, "chocolate")
	requireRecoveredSoon(t, granted)
	eventuallyHear(t, n, recreated.ResourceVersion)
}

// eventuallyHear waits until all caches of the controller are as new as that resource version.
func eventuallyHear(t *testing.T, n *lab.Namespace, resourceVersion string) {
	t.Helper()
	want, err := strconv.ParseFloat(resourceVersion, 64)
	if err != nil {
		t.Fatal(err)
	}
	n.Eventually(t, "all caches are up to date", func(context.Context) error {
		for _, resource := range []string{"icecreams", "deployments", "pods"} {
			if version := cacheVersion(t, n.Controller, resource); version < want {
				return fmt.Errorf("the cache of %s has version %v, want %v", resource, version, want)
			}
		}
		return nil
	})
}

// cacheVersion returns the resource version of the controller's cache of a resource, according
// to its metrics.
func cacheVersion(t *testing.T, c *lab.Controller, resource string) float64 {
	t.Helper()
	all := c.Metrics(t)
	found := regexp.MustCompile(`(?m)^controller_cache_resource_version{controller="icecream",resource="` + resource + `",selector="[^"]*"} (.*)$`).FindStringSubmatch(all)
	if found == nil {
		t.Fatalf("there is no such metric for %s in\n%s", resource, all)
	}
	version, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// eventuallyFailsToWatch waits until the log has an error about the cache of Icecreams with
// these words.
func eventuallyFailsToWatch(t *testing.T, n *lab.Namespace, words string) {
	t.Helper()
	n.Eventually(t, "the log says why the controller cannot watch Icecreams", func(context.Context) error {
		for _, line := range n.Controller.Errors() {
			if strings.Contains(line, "Failed to watch") && strings.Contains(line, "Icecream") && strings.Contains(line, words) {
				return nil
			}
		}
		return fmt.Errorf("its errors are %q", n.Controller.Errors())
	})
}

// requireRecoveredSoon requires that the controller has recovered within client-go's longest
// back-off since the cause was removed.
func requireRecoveredSoon(t *testing.T, since time.Time) {
	t.Helper()
	took := time.Since(since)
	t.Logf("it recovered after %s", took.Round(time.Millisecond))
	if took > time.Minute {
		t.Errorf("it recovered only after %s", took.Round(time.Second))
	}
}

// outage kills the API server and, after that long, starts it again.
func outage(t *testing.T, l *lab.Lab, while time.Duration) {
	t.Helper()
	if err := l.KillComponent(cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	time.Sleep(while)
	if err := l.StartComponent(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
}
