package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	localcluster "nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/test/faults/fault"
	"nicoleh.io/k8s-controller/test/lab"
)

const (
	// name is the name of the Icecream of a run, and of its Deployment.
	name = "vanilla"
	// edits is how often the Icecream is edited.
	edits = 5
	// lease is the name of the Lease of the controllers.
	lease = "k8s-controller"

	// The controller must make no request for quiet after everything is done, and then none
	// for quiet again.
	quiet = 5 * time.Second
	// moreGoroutines is how many more goroutines a controller may have at rest than it had
	// when it was started.
	moreGoroutines = 10
)

// elect holds the flags for leader election. A leader keeps it even
// if the API server does not answer for a minute, as it happens on a busy machine.
var elect = []string{"-leader-elect", "-leader-elect-lease-duration=90s", "-leader-elect-renew-deadline=80s", "-leader-elect-retry-period=10s"}

// A run is a controller whose requests go through faults, in a namespace of its own. In each
// run, a user creates the same Icecream and edits it in the same way.
type run struct {
	*lab.Namespace
	faults fault.Set

	kept       atomic.Int64 // requests that the faults have kept from the API server
	watches    *openWatches // nil if requests do not go through faults
	goroutines int          // of the controller before it had anything to do; 0 if unknown
	last       time.Time    // when the user or the test last changed something
}

// watched are the resources that a controller watches.
var watched = []string{"icecreams", "deployments", "pods"}

// openWatches counts the watches of a controller that have begun and not ended.
type openWatches struct {
	mu     sync.Mutex
	counts map[string]int // by resource
}

// handler returns a handler that counts the watches that pass through it.
func (o *openWatches) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		if in.URL.Query().Has("watch") {
			resource := path.Base(in.URL.Path)
			o.add(resource, 1)
			defer o.add(resource, -1)
		}
		next.ServeHTTP(out, in)
	})
}

func (o *openWatches) add(resource string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts[resource] += n
}

// isWatching returns nil if the controller watches everything that it should.
func (r *run) isWatching(context.Context) error {
	r.watches.mu.Lock()
	defer r.watches.mu.Unlock()
	for _, resource := range watched {
		if r.watches.counts[resource] == 0 {
			return fmt.Errorf("it does not watch %s", resource)
		}
	}
	return nil
}

// begin starts a controller, and waits until it works.
func begin(t *testing.T, flags ...string) *run {
	t.Helper()
	r := &run{Namespace: shared.NewNamespace(t), watches: &openWatches{counts: map[string]int{}}}
	r.faults.Log = func(request fault.Request, rules []*fault.Active) {
		if request.Verb != "watch" && slices.ContainsFunc(rules, isKept) {
			r.kept.Add(1)
		}
	}
	r.StartControllerThrough(t, func(apiServer http.Handler) http.Handler {
		return r.faults.Handler(r.watches.handler(withoutKeepAlive(apiServer)))
	}, append([]string{"-insecure-bind-address=127.0.0.1:0"}, flags...)...)
	r.Eventually(t, "the controller watches", r.isWatching)
	r.eventuallyLogs(t, r.Controller, `"Started" logger="icecream"`)
	r.goroutines = goroutinesOf(t, r.Controller)
	return r
}

// isKept reports whether a rule keeps requests from the API server.
func isKept(a *fault.Active) bool {
	return a.Rule.Effect == fault.HangBefore
}

// withoutKeepAlive closes the connection after each request other than a watch, so that idle
// connections do not count as goroutines.
func withoutKeepAlive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		if !in.URL.Query().Has("watch") {
			out.Header().Set("Connection", "close")
		}
		next.ServeHTTP(out, in)
	})
}

// eventuallyLogs waits until the log of a controller contains words.
func (r *run) eventuallyLogs(t *testing.T, c *lab.Controller, words string) {
	t.Helper()
	r.Eventually(t, "the log has "+words, func(context.Context) error {
		if !strings.Contains(c.Log(), words) {
			return errors.New("it does not")
		}
		return nil
	})
}

// breaks puts a fault in force.
func (r *run) breaks(rule fault.Rule) *fault.Active { return r.faults.Add(rule) }

// heals ends a fault.
func (r *run) heals(faults ...*fault.Active) {
	for _, f := range faults {
		f.Remove()
	}
	r.last = time.Now()
}

// create creates the Icecream.
func (r *run) create(t *testing.T) {
	t.Helper()
	r.Create(t, name, v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](2), Image: imageOf(0)})
	r.last = time.Now()
}

// edit makes an edit of the Icecream, of which the first has number 1.
func (r *run) edit(t *testing.T, number int) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"image":%q,"replicas":2}}`, imageOf(number))
	if _, err := r.Icecreams().Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	r.last = time.Now()
}

// editAll makes all edits, without waiting for the controller.
func (r *run) editAll(t *testing.T) {
	t.Helper()
	for i := range edits {
		r.edit(t, i+1)
	}
}

func imageOf(edit int) string { return fmt.Sprintf("registry.example/vanilla:%d", edit) }

// applied waits until a fault has been applied to that many requests.
func (r *run) applied(t *testing.T, f *fault.Active, want int) {
	t.Helper()
	r.Eventually(t, fmt.Sprintf("the fault %s has been applied to %d requests", f.Rule.Effect, want), func(context.Context) error {
		if got := f.Applied(); got < want {
			return fmt.Errorf("it has been applied to %d", got)
		}
		return nil
	})
}

// recovers requires that the Icecream and its Deployment are in the end as if nothing had
// happened, that exactly one Deployment was created and none deleted, and that the controller
// comes to rest, with not many more goroutines than before. It must not have made more than
// budget requests other than watches and those for its Lease.
//
// The lab itself checks that the log has no panic, that the controller ends cleanly, and that
// each status was true when it was written.
func (r *run) recovers(t *testing.T, budget int) {
	t.Helper()
	want := r.reference(t)
	r.Eventually(t, "all is as without faults", func(ctx context.Context) error {
		got, err := r.endState(ctx)
		if diff := lab.Diff(want, got); err == nil && diff != "" {
			err = fmt.Errorf("it differs (-want +got):\n%s", diff)
		}
		return err
	})
	settled := time.Since(r.last)
	r.comesToRest(t)

	writes := r.Requests(t).Resource("deployments").Writes()
	created, deleted := writes.Where(isCreation), writes.Where(isAccepted("delete"))
	if len(created) != 1 || len(deleted) > 0 {
		t.Errorf("the Deployments that were created: %v, and deleted: %v; want one and none", created.ByObject(), deleted.ByObject())
	}
	made := r.requests(t)
	total := len(made) + int(r.kept.Load())
	t.Logf("settled after %s; %d requests of at most %d, of which %d did not reach the API server; the others: %s", settled.Round(10*time.Millisecond), total, budget, r.kept.Load(), made)
	if total > budget {
		t.Errorf("the controller made %d requests, more than %d", total, budget)
	}
	r.returnsGoroutines(t)
}

// isCreation reports whether a request has created an object: also an apply can.
func isCreation(e *localcluster.AuditEvent) bool { return e.Code == http.StatusCreated }

// requests returns the requests of the namespace's controllers that have arrived at the API
// server, except watches and those for their Lease.
func (r *run) requests(t *testing.T) lab.Requests {
	t.Helper()
	return r.Lab.Requests(t).By(r.Controller.User).Where(func(e *localcluster.AuditEvent) bool {
		return e.Verb != "watch" && e.Resource != "leases"
	})
}

// comesToRest waits until the controller makes no requests any more, and requires that it
// stays so. After a fault, client-go takes up to half a minute to begin a watch that it could
// not begin before, and what the watch brings may be a reason for more requests. Events do not
// count here: client-go sends one that has failed again ten seconds later.
func (r *run) comesToRest(t *testing.T) {
	t.Helper()
	if r.watches != nil {
		r.Eventually(t, "the controller watches again", r.isWatching)
	}
	atRest := func(context.Context) error {
		if made := r.requests(t).Where(isNoEvent).Since(time.Now().Add(-quiet)); len(made) > 0 {
			return fmt.Errorf("it made %s", made)
		}
		return nil
	}
	r.Eventually(t, "the controller is at rest", atRest)
	r.Consistently(t, "the controller is at rest", quiet, atRest)
}

// returnsGoroutines waits until the controller has not many more goroutines than before.
func (r *run) returnsGoroutines(t *testing.T) {
	t.Helper()
	if r.goroutines == 0 {
		return
	}
	most := r.goroutines + moreGoroutines
	r.Eventually(t, "the goroutines have ended", func(context.Context) error {
		if now := goroutinesOf(t, r.Controller); now > most {
			return fmt.Errorf("there are %d, want at most %d", now, most)
		}
		return nil
	})
	t.Logf("%d goroutines at the start, %d at the end", r.goroutines, goroutinesOf(t, r.Controller))
}

// requireTerms requires that there were that many terms, and that each process wrote only in
// its own.
func (r *run) requireTerms(t *testing.T, want int) {
	t.Helper()
	terms, err := r.Requests(t).Terms(lease)
	if err != nil {
		t.Error(err)
	}
	if len(terms) != want {
		t.Errorf("there were %d terms, want %d: %+v", len(terms), want, terms)
	}
}

// endState is what a run ends with, without what differs from run to run.
type endState struct {
	Labels, Annotations map[string]string
	Owners              []string
	Spec                appsv1.DeploymentSpec
	Status              v1alpha1.IcecreamStatus
}

// endState returns how things are now. It returns an error if the Icecream is not Ready, there
// is another Deployment, or the status has the wrong nodes: after many writes, a report about
// them may wait for longer than quiet.
func (r *run) endState(ctx context.Context) (s endState, err error) {
	ice, err := r.Icecreams().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return s, err
	}
	if err := lab.IsReady(ice); err != nil {
		return s, err
	}
	all, err := r.Deployments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, err
	}
	if len(all.Items) != 1 {
		return s, fmt.Errorf("there are %d Deployments, want 1", len(all.Items))
	}
	d := all.Items[0]
	delete(d.Annotations, "deployment.kubernetes.io/revision") // Edits may have been rolled out as one.
	delete(d.Annotations, patch.AnnotationAsked)               // a digest of the owner's UID, too
	s = endState{Labels: d.Labels, Annotations: d.Annotations, Spec: d.Spec, Status: ice.Status}
	for _, owner := range d.OwnerReferences {
		if owner.UID != ice.UID {
			return s, errors.New("the Deployment has an owner of another UID")
		}
		s.Owners = append(s.Owners, owner.Kind+" "+owner.Name)
	}
	pods, err := r.Pods().List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, err
	}
	if nodes := nodesOf(pods.Items); !slices.Equal(nodes, ice.Status.Nodes) {
		return s, fmt.Errorf("the status lists %+v; counting the Pods gives %+v", ice.Status.Nodes, nodes)
	}
	// The scheduler chooses the nodes.
	s.Status.Nodes, s.Status.NodeCount, s.Status.Placement = nil, 0, ""
	s.Status.ObservedGeneration = 0 // that of the Icecream, because it is Ready
	for i := range s.Status.Conditions {
		s.Status.Conditions[i].LastTransitionTime = metav1.Time{}
		s.Status.Conditions[i].ObservedGeneration = 0
	}
	return s, nil
}

// nodesOf returns what the status of an Icecream with these Pods says about their nodes, if
// each Pod is ready unless it is being deleted.
func nodesOf(pods []corev1.Pod) (nodes []v1alpha1.IcecreamNode) {
	onNode := map[string]int32{}
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil {
			onNode[pod.Spec.NodeName]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(onNode)) {
		nodes = append(nodes, v1alpha1.IcecreamNode{Name: name, Pods: onNode[name], ReadyPods: onNode[name]})
	}
	return nodes
}

// reference returns what a run without faults has ended with.
func (r *run) reference(t *testing.T) endState {
	t.Helper()
	without.Do(func() {
		n := &run{Namespace: r.Lab.NewNamespace(t)}
		n.StartController(t)
		n.create(t)
		n.EventuallyReady(t, name)
		n.editAll(t)
		n.Eventually(t, "the Icecream is Ready", func(ctx context.Context) (err error) {
			without.state, err = n.endState(ctx)
			return err
		})
	})
	return without.state
}

// without is the run without faults.
var without struct {
	sync.Once
	state endState
}

// isAccepted returns a function that reports whether a request of that verb has succeeded.
func isAccepted(verb string) func(*localcluster.AuditEvent) bool {
	return func(e *localcluster.AuditEvent) bool { return e.Verb == verb && e.Code < 300 }
}

// isNoEvent reports whether a request is for anything but events.
func isNoEvent(e *localcluster.AuditEvent) bool { return e.Resource != "events" }

// goroutinesOf returns how many goroutines a controller has.
func goroutinesOf(t *testing.T, c *lab.Controller) int {
	t.Helper()
	return int(metricOf(t, c, "go_goroutines"))
}

// metricOf returns the value of a metric without labels.
func metricOf(t *testing.T, c *lab.Controller, metric string) float64 {
	t.Helper()
	all := c.Metrics(t)
	for line := range strings.Lines(all) {
		if text, ok := strings.CutPrefix(line, metric+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("there is no %s in\n%s", metric, all)
	return 0
}
