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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// What the controller needs is taken from it, and given back later. It recovers on its own. Until then, its log says
// what it lacks, its metrics show which cache is cut off, and its probes succeed.
func TestWhatIsMissingForAWhile(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		// take takes it, and returns what gives it back.
		take  func(t *testing.T, l *lab.Lab) (give func())
		words string // of the log
	}{
		{"the CustomResourceDefinition", deleteDefinition, "could not find the requested resource"},
		{"a permission", revokePermission, "is forbidden"},
	} {
		t.Run(row.name, func(t *testing.T) {
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

			give := row.take(t, l)
			eventuallyFailsToWatch(t, n, row.words)
			version, edits := cacheVersion(t, c, "icecreams"), 0
			n.Consistently(t, "the cache does not learn of edits", 5*time.Second, func(ctx context.Context) error {
				edits++
				_, _ = n.TryKubectl(ctx, "", "annotate", "--overwrite", "icecream", "vanilla", "edits="+strconv.Itoa(edits)) // without the definition, there is none
				if now := cacheVersion(t, c, "icecreams"); now != version {
					return fmt.Errorf("its version was %v, and is %v", version, now)
				}
				return nil
			})
			requireProbes(t, c, http.StatusOK, http.StatusOK)

			give()
			given := time.Now()
			created := n.Create(t, "chocolate", v1alpha1.IcecreamSpec{})
			eventuallyHasDeployment(t, n, "chocolate")
			if took := time.Since(given); took > time.Minute { // client-go's longest back-off
				t.Errorf("it recovered only after %s", took.Round(time.Second))
			}
			n.EventuallyReady(t, "chocolate")
			eventuallyHear(t, n, created.ResourceVersion)
		})
	}
}

func deleteDefinition(t *testing.T, l *lab.Lab) (give func()) {
	t.Helper()
	lab.Kubectl(t, l, "delete", "-f", l.Path(crdFile))
	return func() {
		lab.Kubectl(t, l, "apply", "-f", l.Path(crdFile))
		lab.Kubectl(t, l, "wait", `--for=jsonpath={.status.conditions[?(@.type=="Established")].status}=True`, "crd/icecreams.controller.nicoleh.io")
	}
}

func revokePermission(t *testing.T, l *lab.Lab) (give func()) {
	t.Helper()
	bindings := l.Kube.RbacV1().ClusterRoleBindings()
	binding, err := bindings.Get(t.Context(), lab.ServiceAccount, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := bindings.Delete(t.Context(), binding.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	outage(t, l) // This ends the watches, which would otherwise go on without permission.
	return func() {
		binding.ResourceVersion = ""
		if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// The API server is killed in the middle of the work, and comes back. In the end, everything is as users have asked,
// no Deployment was made twice, and the controller comes to rest.
func TestAPIServerIsKilled(t *testing.T) {
	t.Parallel()
	l := NewLab(t, lab.Options{})
	n := l.NewNamespace(t)
	n.Controller = l.StartController(t)
	const icecreams = 10
	specs := createAll(t, n, icecreams)
	n.Eventually(t, "all are Ready", func(ctx context.Context) error { return allReady(ctx, n, icecreams) })
	for edit := range 5 {
		editAll(t, n, specs, edit+1)
	}
	outage(t, l)
	// Kubernetes' own controllers may take minutes to go on, so the test waits for no Pod.
	n.Eventually(t, "all are as specified", func(context.Context) error { return areAsSpecified(t, n, specs) })
	eventuallyIdle(t, n, n.Controller)
	requireCreatedOnce(t, n)
	requireAtMost(t, 60, "requests", requestsOf(t, n).Where(isNotWatch))
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

// outage kills the API server, and starts it again a second later.
func outage(t *testing.T, l *lab.Lab) {
	t.Helper()
	if err := l.KillComponent(cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	if err := l.StartComponent(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
}
