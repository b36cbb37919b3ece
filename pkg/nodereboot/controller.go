package nodereboot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/events"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/news"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/pkg/kit/response"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// Name is the controller's name in flags, logs, metrics and events.
const Name = "nodereboot"

const (
	fieldManager = Name + "-controller"
	// batchPeriod is how long changes of nodes are collected for one sync.
	batchPeriod = 100 * time.Millisecond
)

// allNodes is the only key: the budget is about all nodes together.
var allNodes = cache.NewObjectName("", "nodes")

// Controller grants nodes their reboots. One sync takes one step of one node:
//
//	observe → decide → act → report
//
// The caches only say when there may be a step to take. Which one it is, decide rechecks
// with a live list. So there is nothing to wait for in the caches: ensureCachesReady, the
// first phase of the other controllers, is missing here.
type Controller struct {
	*worker.Loop

	config     Config
	nodeClient nodeClient
	podClient  podClient
	nodes      informer.Cache[*corev1.Node]
	recorder   events.EventRecorder
	clock      clock.WithTicker
	grants     metrics.Total

	firingAlerts func(context.Context, time.Time) ([]string, error) // those that hold reboots back; nil if none does
	waiting      news.Store[types.UID, string]                      // why each node waits, as recorded last

	mu             sync.Mutex
	lastGrant      time.Time               // by this process
	availableSince map[types.UID]time.Time // of each node
	lastReport     map[string]time.Time    // of each node's agent
	hold           Hold                    // as found out last
}

// nodeClient is what the controller needs of a typed client of Nodes.
type nodeClient interface {
	List(ctx context.Context, opts metav1.ListOptions) (*corev1.NodeList, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*corev1.Node, error)
}

// podClient is what the controller needs of a typed client of Pods.
type podClient interface {
	List(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error)
}

// NewController wires a controller to its informers and starts nothing. The client of Pods
// must be of all namespaces, and the informer of Leases restricted to the agents' namespace.
func NewController(config Config, nodeClient nodeClient, podClient podClient, nodes informer.Cache[*corev1.Node], leases informer.Cache[*coordinationv1.Lease], recorder events.EventRecorder, clock clock.WithTicker) (*Controller, error) {
	c := &Controller{
		config:         config,
		nodeClient:     nodeClient,
		podClient:      podClient,
		nodes:          nodes,
		recorder:       recorder,
		clock:          clock,
		grants:         newGrants(),
		availableSince: map[types.UID]time.Time{},
		lastReport:     map[string]time.Time{},
	}
	if config.PrometheusURL != "" {
		var err error
		if c.firingAlerts, err = prometheusAlerts(config.PrometheusURL, config.Alerts); err != nil {
			return nil, fmt.Errorf("-nodereboot-prometheus-url: %w", err)
		}
	}
	c.Loop = worker.New(Name, c.sync, worker.WithClock(clock), worker.WithObserver(metrics.For(Name).Sync), worker.WithKeys(slices.Values([]cache.ObjectName{allNodes})))
	if err := setTransforms(nodes, leases); err != nil {
		return nil, fmt.Errorf("setting up the caches: %w", err)
	}
	if err := c.addHandlers(nodes, leases); err != nil {
		return nil, fmt.Errorf("adding event handlers: %w", err)
	}
	c.addGauges()
	return c, nil
}

// sync brings one node a step closer to its reboot, or records why all of them wait.
func (c *Controller) sync(ctx context.Context, _ cache.ObjectName) (requeueAfter time.Duration, err error) {
	decision, err := c.decide(ctx, c.observe())
	if err != nil {
		return 0, err
	}
	node, err := c.act(ctx, decision)
	if err != nil {
		return 0, err
	}
	return c.report(ctx, node, decision), nil
}

// observe reads all nodes from the cache.
func (c *Controller) observe() Observed {
	return c.observed(slices.Collect(c.nodes.All()))
}

// observed adds what is remembered to these nodes.
func (c *Controller) observed(nodes []*corev1.Node) Observed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Observed{
		Config:         c.config,
		Now:            c.clock.Now(),
		Nodes:          nodes,
		LastGrant:      c.lastGrant,
		AvailableSince: maps.Clone(c.availableSince),
		LastReport:     maps.Clone(c.lastReport),
		Hold:           c.hold,
	}
}

// decide decides on the next step. If there is one, it asks what holds reboots back, and
// decides a second time by a live list of nodes.
func (c *Controller) decide(ctx context.Context, o Observed) (Decision, error) {
	d := Decide(o)
	if d.Step == Rest {
		return d, nil
	}
	if d.Step == Choose || d.Step == Grant {
		if err := c.refreshHold(ctx); err != nil {
			return d, err
		}
	}
	fresh, err := c.recheckLive(ctx)
	if err != nil {
		return d, err
	}
	return Decide(fresh), nil
}

// recheckLive observes a live list of all nodes. The list is read page by page, all from
// the same moment, and no more is kept of each node than in the cache: a Node may have
// 50 kB.
func (c *Controller) recheckLive(ctx context.Context) (Observed, error) {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.nodeClient.List(ctx, options)
	})
	pages.FullListIfExpired = false // an expired list is retried, page by page
	var nodes []*corev1.Node
	err := pages.EachListItemWithAlloc(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		node := item.(*corev1.Node)
		Strip(node)
		nodes = append(nodes, node)
		return nil
	})
	if err != nil {
		return Observed{}, fmt.Errorf("listing nodes: %w", err)
	}
	return c.observed(nodes), nil
}

// act takes the step with one write, which the API server refuses if the node has changed
// since the live list. It returns the node as stored.
func (c *Controller) act(ctx context.Context, d Decision) (*corev1.Node, error) {
	if d.Step == Rest {
		return nil, nil
	}
	body, err := patch.Merge(d.Node, d.Annotations, nil)
	if err != nil {
		return nil, err
	}
	after, err := c.nodeClient.Patch(ctx, d.Node.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	if response.IsStale(err) {
		return nil, worker.Requeue(fmt.Errorf("node %s has changed or is gone since the decision: %w", d.Node.Name, err))
	}
	if err != nil {
		return nil, fmt.Errorf("step %s of node %s: %w", d.Step, d.Node.Name, err)
	}
	if d.Step == Grant {
		c.grants.Inc()
		c.mu.Lock()
		c.lastGrant = c.clock.Now()
		c.mu.Unlock()
	}
	return after, nil
}

// report records what the step was, or why nodes wait, and returns when to sync next.
func (c *Controller) report(ctx context.Context, node *corev1.Node, d Decision) (requeueAfter time.Duration) {
	switch d.Step {
	case Rest:
		c.recordWaiting(d.Waiting)
		return d.RequeueAfter
	case Grant:
		c.recordGrant(ctx, node, d)
	default:
		klog.FromContext(ctx).V(2).Info("Took a step", "step", d.Step, "node", klog.KObj(node))
	}
	return batchPeriod // the next step, by another list
}
