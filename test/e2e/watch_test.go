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

// A CustomResourceDefinition that is deleted, and created again much later, needs
// nobody to look after the controller.
func TestDefinitionMadeAnew(t *testing.T) {
	t.Parallel()
	l := NewLab(t, lab.Options{})
	c := l.StartController(t, "-bind-address=127.0.0.1:0", "-insecure-bind-address=127.0.0.1:0")
	n := l.NewNamespace(t)
	n.Controller = c
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "vanilla")

	crd := l.Path("artifacts/examples/crd-icecream.yaml")
	n.Kubectl(t, "delete", "-f", crd)
	eventuallyWaits(t, n, "the cluster does not know this resource", "kubectl apply -f artifacts/examples/crd-icecream.yaml")
	heard := lastHeard(t, c, "icecreams")
	mark := time.Now()
	const while = 20 * time.Second
	time.Sleep(while)
	// By itself, client-go would have asked five times at most.
	if asked := l.Requests(t).By(c.User).Since(mark).Resource("icecreams").Code(http.StatusNotFound); len(asked) < 10 {
		t.Errorf("in %s it has asked %d times for what is gone", while, len(asked))
	}
	if still := lastHeard(t, c, "icecreams"); !still.Equal(heard) {
		t.Errorf("the cache has heard at %s and at %s from what is gone", heard, still)
	}
	requireProbes(t, c, http.StatusOK, http.StatusOK)

	n.Kubectl(t, "apply", "-f", crd)
	n.Kubectl(t, "wait", "--for=condition=Established", "crd/icecreams.controller.nicoleh.io")
	established := time.Now()
	n.Create(t, "chocolate", v1alpha1.IcecreamSpec{})
	n.Eventually(t, "the next Icecream has its Deployment", func(ctx context.Context) error {
		_, err := n.Deployments().Get(ctx, "chocolate", metav1.GetOptions{})
		return err
	})
	t.Logf("an Icecream had its Deployment %s after it was defined again what that is", time.Since(established).Round(time.Millisecond))
	n.EventuallyReady(t, "chocolate")
	requireToldOnce(t, c)
}

// Nor does a permission that is taken away and given again.
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
	outage(t, l, time.Second) // a watch that is under way needs no permission
	eventuallyWaits(t, n, "permission is missing", "artifacts/rbac-icecream.yaml")
	heard := lastHeard(t, c, "icecreams")
	edits := 0
	n.Steadily(t, "the cache hears of no edit", 5*time.Second, func(context.Context) error {
		edits++
		n.Kubectl(t, "annotate", "--overwrite", "icecream", "vanilla", "edits="+strconv.Itoa(edits))
		if still := lastHeard(t, c, "icecreams"); !still.Equal(heard) {
			return fmt.Errorf("it has heard at %s and at %s", heard, still)
		}
		return nil
	})
	requireProbes(t, c, http.StatusOK, http.StatusOK)

	again := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: binding.Name, Labels: binding.Labels}, RoleRef: binding.RoleRef, Subjects: binding.Subjects}
	if _, err := bindings.Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	granted := time.Now()
	n.Eventually(t, "all caches hear again", func(context.Context) error {
		for _, resource := range []string{"icecreams", "deployments", "pods"} {
			if at := lastHeard(t, c, resource); at.Before(granted) {
				return fmt.Errorf("that of %s has heard at %s, and permission was granted at %s", resource, at, granted)
			}
		}
		return nil
	})
	t.Logf("all caches heard again %s after permission was granted", time.Since(granted).Round(time.Millisecond))
	n.Create(t, "chocolate", v1alpha1.IcecreamSpec{})
	n.Eventually(t, "the next Icecream has its Deployment", func(ctx context.Context) error {
		_, err := n.Deployments().Get(ctx, "chocolate", metav1.GetOptions{})
		return err
	})
	requireToldOnce(t, c)
}

// Bookmarks tell an idle cache from one that is cut off.
func TestEveryCacheHears(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	c := n.StartController(t, "-insecure-bind-address=127.0.0.1:0")
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "vanilla")
	for _, resource := range []string{"icecreams", "deployments", "pods"} {
		created := n.Icecream(t, "vanilla").CreationTimestamp
		if at := lastHeard(t, c, resource); at.Before(created.Time) || at.After(time.Now()) {
			t.Errorf("the cache of %s heard at %s; the Icecream was created at %s", resource, at, created)
		}
	}
}

// lastHeard is when the controller's cache of a resource has last heard from the API
// server, according to its metrics.
func lastHeard(t *testing.T, c *lab.Controller, resource string) time.Time {
	t.Helper()
	all := metricsOf(t, c)
	found := regexp.MustCompile(`(?m)^controller_cache_last_heard_timestamp_seconds{controller="icecream",resource="` + resource + `",selector="[^"]*"} (.*)$`).FindStringSubmatch(all)
	if found == nil {
		t.Fatalf("there is none for %s in\n%s", resource, all)
	}
	seconds, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.UnixMilli(int64(seconds * 1000))
}

// eventuallyWaits waits until the controller says in a line with these words that its
// cache of Icecreams waits for something.
func eventuallyWaits(t *testing.T, n *lab.Namespace, words ...string) {
	t.Helper()
	n.Eventually(t, "the controller says what it waits for", func(context.Context) error {
		said := waits(n.Controller)
		if len(said) == 0 {
			return errors.New("it does not")
		}
		for _, word := range words {
			if !strings.Contains(said[0], word) {
				return fmt.Errorf("it says %q, and nothing of %q", said[0], word)
			}
		}
		return nil
	})
}

// waits are the lines in which the controller says what its cache of Icecreams waits
// for.
func waits(c *lab.Controller) (found []string) {
	for line := range strings.Lines(c.Log()) {
		if strings.Contains(line, `"Waiting" for="icecreams.`) {
			found = append(found, line)
		}
	}
	return found
}

// requireToldOnce requires that the log has one line on each wait, and one on its end.
func requireToldOnce(t *testing.T, c *lab.Controller) {
	t.Helper()
	if said := waits(c); len(said) != 1 {
		t.Errorf("it says %d times what it waits for: %s", len(said), said)
	}
	if ends := strings.Count(c.Log(), `"Going on" with="icecreams.`); ends != 1 {
		t.Errorf("it says %d times that it goes on:\n%s", ends, c.Log())
	}
}
