package script

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// Cluster is an API server and nothing else: no controller and no kubelet acts on its own. Its
// methods are safe for concurrent use. Requests are named by verb, resource and subresource, such
// as "create deployments", also by an apply, and "create pods eviction".
type Cluster struct {
	t      testing.TB
	server *apiserver.Server

	mu       sync.Mutex
	store    apiserver.Store
	past     []apiserver.Store // and the present: what a watch can begin with
	watches  []*watch
	held     map[string]bool    // by resource
	next     map[string][]error // by request: how the next ones fail
	slow     map[string]time.Duration
	refuse   func(request string) error
	admit    func(apiserver.Admission) error // what policies do; nil is nothing
	mutate   func(apiserver.Admission)
	requests map[string]int
	changed  chan struct{} // has room for one
}

// memory is how many steps of the past a watch can begin with.
const memory = 100

// errLost is how a request fails that is carried out, and whose response is lost.
var errLost = errors.New("the connection was lost")

// New returns a cluster that knows these kinds, and has no objects.
func New(t testing.TB, kinds ...apiserver.Kind) *Cluster {
	c := &Cluster{t: t, past: []apiserver.Store{{}}, held: map[string]bool{}, next: map[string][]error{}, slow: map[string]time.Duration{}, requests: map[string]int{}, changed: make(chan struct{}, 1)}
	c.server = apiserver.New(apiserver.Options{
		Mutate: func(a apiserver.Admission) { // The caller holds mu.
			if c.mutate != nil {
				c.mutate(a)
			}
		},
		Admit: func(a apiserver.Admission) error {
			if c.admit == nil {
				return nil
			}
			return c.admit(a)
		},
	}, kinds...)
	return c
}

// Config returns the configuration of a client.
func (c *Cluster) Config() *rest.Config { return &rest.Config{Transport: c, QPS: -1} }

// Fail has the next requests of that name fail, each with the next error; one that is nil lets a
// request pass. The API server answers with a status, and any other error is one of the
// connection: the request has not arrived, or, for [errLost], its response does not.
func (c *Cluster) Fail(request string, with ...error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next[request] = with
}

// Slow has each request of that name take some time before it is carried out; none if it is zero.
func (c *Cluster) Slow(request string, by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slow[request] = by
}

// Refuse has a policy decide on each request from now on; nil ends that.
func (c *Cluster) Refuse(policy func(request string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = policy
}

// hold holds up the watches of a resource.
func (c *Cluster) hold(resource string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[resource] = true
}

// release lets the watches of a resource catch up, and holds them up no longer.
func (c *Cluster) release(resource string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[resource] = false
	for _, w := range c.watches {
		w.notify()
	}
}

// expire ends the watches of a resource, with all that they have not shown, and forgets the past: the
// clients have to list.
func (c *Cluster) expire(resource string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past = c.past[len(c.past)-1:]
	for _, w := range c.watches {
		if w.resource == resource {
			w.isCut = true
			w.notify()
		}
	}
}

// Requests returns how many requests of that name the clients have sent.
func (c *Cluster) Requests(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests[name]
}

// Writes returns how many requests the clients have sent to change something, by name.
func (c *Cluster) Writes() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	writes := maps.Clone(c.requests)
	maps.DeleteFunc(writes, func(name string, _ int) bool {
		verb, _, _ := strings.Cut(name, " ")
		return slices.Contains([]string{"get", "list", "watch"}, verb)
	})
	return writes
}

// forgetRequests begins to count from zero.
func (c *Cluster) forgetRequests() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.requests)
}

// RoundTrip implements http.RoundTripper.
func (c *Cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	request, err := apiserver.ReadRequest(r)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	isWatch := request.Query.Has("watch")
	if isWatch {
		request.Query.Del("watch") // The model knows no watches.
	}
	verb, key, subresource, ok := c.server.Parse(request)
	if !ok {
		c.t.Errorf("the model does not know %s %s", r.Method, r.URL)
		return apiserver.Refuse(apierrors.NewMethodNotSupported(key.Resource, r.Method)).HTTP(r), nil
	}
	if isWatch {
		return c.watch(r, key, request)
	}
	if c.server.Creates(c.store, request) {
		verb = "create" // also by an apply
	}
	name := strings.TrimSpace(fmt.Sprintf("%s %s %s", verb, key.Resource.Resource, subresource))
	if by := c.slow[name]; by > 0 {
		c.mu.Unlock()
		time.Sleep(by)
		c.mu.Lock()
	}
	err = c.failure(name)
	switch status := apierrors.APIStatus(nil); {
	case errors.As(err, &status):
		return apiserver.Refuse(err).HTTP(r), nil
	case err != nil && !errors.Is(err, errLost):
		return nil, err
	}
	request.Query.Del("limit") // A list is never in chunks.
	store, response := c.server.Answer(c.store, time.Now(), request)
	c.commit(store)
	if response.Code == http.StatusNotImplemented {
		c.t.Errorf("%s %s: %s", r.Method, r.URL, response.Body)
	}
	if err != nil {
		return nil, err
	}
	return response.HTTP(r), nil
}

// failure counts a request, and returns how it fails, if it does.
func (c *Cluster) failure(request string) error {
	c.requests[request]++
	if c.refuse != nil {
		if err := c.refuse(request); err != nil {
			return err
		}
	}
	var err error
	if next := c.next[request]; len(next) > 0 {
		err, c.next[request] = next[0], next[1:]
	}
	return err
}

// commit stores what a step has led to, and tells watches.
func (c *Cluster) commit(after apiserver.Store) {
	if after.Version == c.store.Version {
		return
	}
	for _, w := range c.watches {
		w.add(c.store, after)
	}
	c.store = after
	c.past = append(c.past, after)
	if len(c.past) > memory {
		c.past = c.past[1:]
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Step has somebody do something by means of the model, and fails the test if that is refused.
func (c *Cluster) Step(do func(server *apiserver.Server, store apiserver.Store, now time.Time) (apiserver.Store, error)) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	after, err := do(c.server, c.store, time.Now())
	if err != nil {
		c.t.Fatal(err)
	}
	c.commit(after)
}

// Store returns what is stored.
func (c *Cluster) Store() apiserver.Store {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.store
}
