package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// TestEconomy counts the controller's requests in the API server's audit log.
func TestEconomy(t *testing.T) {
	l := NewLab(t, lab.Options{Nodes: 5})
	c := l.StartController(t)
	n := l.NewNamespace(t)
	n.Controller = c

	const icecreams = 150
	begin := time.Now()
	n.Create(t, probe, v1alpha1.IcecreamSpec{})
	var users sync.WaitGroup
	for user := range 10 {
		users.Go(func() {
			for i := user; i < icecreams; i += 10 {
				ice := &v1alpha1.Icecream{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("icecream-%03d", i)}}
				if _, err := n.Icecreams().Create(t.Context(), ice, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	users.Wait()
	created := time.Since(begin)
	n.Eventually(t, "all are Ready", func(ctx context.Context) error { return allReady(ctx, n, icecreams+1) })
	t.Logf("%d Icecreams were created in %s and Ready after %s", icecreams, created.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
	eventuallyIdle(t, n, c)

	made := l.Requests(t).By(c.User)
	t.Logf("requests until all were Ready: %s", made)
	if refused := made.Refused(); len(refused) > 0 {
		t.Errorf("requests were refused: %s", refused)
	}
	if writes := made.Resource("deployments").Writes(); len(writes) != icecreams+1 {
		t.Errorf("%d Deployments took these writes: %s", icecreams+1, writes)
	}
	statuses := made.Resource("icecreams/status").Writes()
	average := float64(len(statuses)) / (icecreams + 1)
	t.Logf("a status was written %.2f times on average", average)
	if average > 2.7 { // Progress may be told once, and that it is Ready.
		t.Errorf("%d statuses took %d writes: %s", icecreams+1, len(statuses), statuses)
	}
	requireAtMost(t, 2, "requests for events", made.Resource("events"))
	if said := strings.Count(c.Log(), `"Placement changed"`); said < icecreams {
		t.Errorf("the log says %d times where Pods run", said)
	}

	// A change of each Pod that makes no difference to a status costs nothing.
	mark := time.Now()
	n.Kubectl(t, "annotate", "pods", "--all", "example.com/changed=yes")
	time.Sleep(5 * time.Second)
	if made := l.Requests(t).By(c.User).Since(mark).Where(isNotWatch); len(made) > 0 {
		t.Errorf("there was nothing to do, but the controller made %s", made)
	}

	for _, restart := range []struct {
		name string
		stop func(testing.TB)
	}{{"SIGTERM", c.Stop}, {"SIGKILL", c.Kill}} {
		restart.stop(t)
		mark = time.Now()
		c.Start(t)
		eventuallyAllSynced(t, n)
		eventuallyIdle(t, n, c)
		made = l.Requests(t).By(c.User).Since(mark).Where(func(e *cluster.AuditEvent) bool { return !isAbout(probe)(e) })
		t.Logf("after a restart by %s: %s", restart.name, made)
		if writes := made.Writes(); len(writes) > 0 {
			t.Errorf("a restart by %s led to writes: %s", restart.name, writes)
		}
		if gets := made.Where(func(e *cluster.AuditEvent) bool { return e.Verb == "get" && e.Resource != "" }); len(gets) > 0 {
			t.Errorf("a restart by %s led to reads that bypassed the caches: %s", restart.name, gets)
		}
	}
	if errs := c.Errors(); len(errs) > 0 {
		t.Errorf("the controller logged errors:\n%s", lab.Clip(strings.Join(errs, "\n")))
	}
}

// probe is the name of an Icecream that shows how far the controller has got.
const probe = "probe"

// eventuallyAllSynced waits until a controller that has just been started has looked at
// every Icecream. Its queue is in order, and starts with all existing objects. The first
// change of the probe may be handled along with these, but the second one comes after
// them.
func eventuallyAllSynced(t *testing.T, n *lab.Namespace) {
	t.Helper()
	for _, replicas := range []string{"0", "1"} {
		n.Kubectl(t, "scale", "icecream/"+probe, "--replicas="+replicas)
		n.EventuallyReady(t, probe)
	}
}

// eventuallyIdle waits until the controller has made no request for three seconds. That
// includes events, which are sent in the background.
func eventuallyIdle(t *testing.T, n *lab.Namespace, c *lab.Controller) {
	t.Helper()
	const while = 3 * time.Second
	n.Eventually(t, "the controller is idle", func(context.Context) error {
		mark := time.Now()
		time.Sleep(while)
		if made := n.Lab.Requests(t).By(c.User).Since(mark).Where(isNotWatch); len(made) > 0 {
			return fmt.Errorf("it made %s", made)
		}
		return nil
	})
}

// allReady returns nil if there are exactly that many Icecreams and all of them are
// Ready.
func allReady(ctx context.Context, n *lab.Namespace, want int) error {
	list, err := n.Icecreams().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	var others []error
	for i := range list.Items {
		if err := lab.IsReady(&list.Items[i]); err != nil {
			others = append(others, fmt.Errorf("%s: %w", list.Items[i].Name, err))
		}
	}
	if len(others) > 0 || len(list.Items) != want {
		return fmt.Errorf("there are %d Icecreams, want %d, and %d are not Ready: %w", len(list.Items), want, len(others), errors.Join(others[:min(3, len(others))]...))
	}
	return nil
}

// isNotWatch reports whether a request is anything other than a watch.
func isNotWatch(e *cluster.AuditEvent) bool { return e.Verb != "watch" }

// isAbout returns a function that reports whether a request is about the Icecream, its
// Deployment of the same name, or their events.
func isAbout(icecream string) func(*cluster.AuditEvent) bool {
	return func(e *cluster.AuditEvent) bool { return subject(e) == icecream }
}

// requireAtMost requires that no Icecream took more than that many requests.
func requireAtMost(t *testing.T, most int, what string, made lab.Requests) {
	t.Helper()
	took := map[string]lab.Requests{}
	for _, e := range made {
		took[subject(e)] = append(took[subject(e)], e)
	}
	icecreams, worst := map[int]int{}, ""
	for icecream, made := range took {
		icecreams[len(made)]++
		if len(made) > len(took[worst]) {
			worst = icecream
		}
	}
	t.Logf("Icecreams by number of %s: %v", what, icecreams)
	if len(took[worst]) > most {
		t.Errorf("%s took %d %s, more than %d: %s", worst, len(took[worst]), what, most, took[worst])
	}
}

// subject returns the name of the object that a request is about. For an event, which has
// a name such as vanilla.17f3a9, that is the object that the event is about.
func subject(e *cluster.AuditEvent) string {
	if dot := strings.LastIndex(e.Name, "."); e.Resource == "events" && dot > 0 {
		return e.Name[:dot]
	}
	return e.Name
}
