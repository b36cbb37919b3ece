package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// When the CustomResourceDefinition is deleted, and created again much later, the
// controller recovers on its own.
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
	eventuallyWaits(t, n, "the cluster does not know this resource", "kubectl apply -f artifacts/examples/crd-icecream.yaml")
	heard := lastHeard(t, c, "icecreams")
	mark := time.Now()
	const while = 20 * time.Second
	time.Sleep(while)
	// With client-go's own backoff there would be five requests at most.
	if asked := l.Requests(t).By(c.User).Since(mark).Resource("icecreams").Code(http.StatusNotFound); len(asked) < 10 {
		t.Errorf("in %s the controller made %d requests for the missing resource, want at least 10", while, len(asked))
	}
	if still := lastHeard(t, c, "icecreams"); !still.Equal(heard) {
		t.Errorf("the resource is missing, but the time at which its cache last heard of it has changed from %s to %s", heard, still)
	}
	requireProbes(t, c, http.StatusOK, http.StatusOK)

	n.Kubectl(t, "apply", "-f", crd)
	n.Kubectl(t, "wait", "--for=condition=Established", "crd/icecreams.controller.nicoleh.io")
	established := time.Now()
	n.Create(t, "chocolate", v1alpha1.IcecreamSpec{})
	eventuallyHasDeployment(t, n, "chocolate")
	t.Logf("an Icecream had its Deployment %s after the CustomResourceDefinition was established again", time.Since(established).Round(time.Millisecond))
	n.EventuallyReady(t, "chocolate")
	requireOneWait(t, c)
}

// When a permission is revoked, and granted again later, the controller recovers on its
// own.
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
	binding, err := bindings.Get(t.Context(), lab.IcecreamRole, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := bindings.Delete(t.Context(), binding.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	outage(t, l, time.Second) // this ends the watches, which would otherwise go on without permission
	eventuallyWaits(t, n, "permission is missing", "artifacts/rbac-icecream.yaml")
	heard := lastHeard(t, c, "icecreams")
	edits := 0
	n.Steadily(t, "the cache does not learn of edits", 5*time.Second, func(context.Context) error {
		edits++
		n.Kubectl(t, "annotate", "--overwrite", "icecream", "vanilla", "edits="+strconv.Itoa(edits))
		if still := lastHeard(t, c, "icecreams"); !still.Equal(heard) {
			return fmt.Errorf("the time at which it last heard from the API server has changed from %s to %s", heard, still)
		}
		return nil
	})
	requireProbes(t, c, http.StatusOK, http.StatusOK)

	recreated := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: binding.Name, Labels: binding.Labels}, RoleRef: binding.RoleRef, Subjects: binding.Subjects}
	if _, err := bindings.Create(t.Context(), recreated, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	granted := time.Now()
	n.Eventually(t, "all caches are up to date again", func(context.Context) error {
		for _, resource := range []string{"icecreams", "deployments", "pods"} {
			if at := lastHeard(t, c, resource); at.Before(granted) {
				return fmt.Errorf("the cache of %s last heard from the API server at %s; permission was granted at %s", resource, at, granted)
			}
		}
		return nil
	})
	t.Logf("all caches were up to date %s after permission was granted", time.Since(granted).Round(time.Millisecond))
	n.Create(t, "chocolate", v1alpha1.IcecreamSpec{})
	eventuallyHasDeployment(t, n, "chocolate")
	requireOneWait(t, c)
}

// Thanks to bookmarks, an idle cache keeps hearing from the API server. That
// distinguishes it from one that is cut off.
func TestEveryCacheHears(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	c := n.StartController(t, "-insecure-bind-address=127.0.0.1:0")
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "vanilla")
	for _, resource := range []string{"icecreams", "deployments", "pods"} {
		created := n.Icecream(t, "vanilla").CreationTimestamp
		if at := lastHeard(t, c, resource); at.Before(created.Time) || at.After(time.Now()) {
			t.Errorf("the cache of %s last heard from the API server at %s; the Icecream was created at %s", resource, at, created)
		}
	}
}

// lastHeard returns the time at which the controller's cache of a resource last heard
// from the API server, according to its metrics.
func lastHeard(t *testing.T, c *lab.Controller, resource string) time.Time {
	t.Helper()
	all := c.Metrics(t)
	found := regexp.MustCompile(`(?m)^controller_cache_last_heard_timestamp_seconds{controller="icecream",resource="` + resource + `",selector="[^"]*"} (.*)$`).FindStringSubmatch(all)
	if found == nil {
		t.Fatalf("there is no such metric for %s in\n%s", resource, all)
	}
	seconds, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.UnixMilli(int64(seconds * 1000))
}

// eventuallyWaits waits until the log has a line with these words about what the
// controller's cache of Icecreams is waiting for.
func eventuallyWaits(t *testing.T, n *lab.Namespace, words ...string) {
	t.Helper()
	n.Eventually(t, "the log says what the controller is waiting for", func(context.Context) error {
		said := waitLines(n.Controller)
		if len(said) == 0 {
			return errors.New("it says nothing")
		}
		for _, word := range words {
			if !strings.Contains(said[0], word) {
				return fmt.Errorf("it says %q, which does not contain %q", said[0], word)
			}
		}
		return nil
	})
}

// waitLines returns the lines of the log that say what the cache of Icecreams is waiting
// for.
func waitLines(c *lab.Controller) (found []string) {
	for line := range strings.Lines(c.Log()) {
		if strings.Contains(line, `"Waiting" for="icecreams.`) {
			found = append(found, line)
		}
	}
	return found
}

// requireOneWait requires that the log has one line about the beginning of the wait and
// one about its end.
func requireOneWait(t *testing.T, c *lab.Controller) {
	t.Helper()
	if said := waitLines(c); len(said) != 1 {
		t.Errorf("the log says %d times what the controller is waiting for: %s", len(said), said)
	}
	if ends := strings.Count(c.Log(), `"Going on" with="icecreams.`); ends != 1 {
		t.Errorf("the log says %d times that the wait is over:\n%s", ends, c.Log())
	}
}
