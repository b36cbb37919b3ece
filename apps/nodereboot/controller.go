// Command nodereboot decides which nodes may reboot now, so that no more of them are
// unavailable at a time than an operator allows. An agent on each node carries out the
// reboot: see package agent, and package request for how the two communicate.
//
// It writes annotations of Nodes, one node at a time, and events. It never cordons,
// drains or reboots anything, and takes a grant back only after its end.
//
// The protocol keeps the budget although caches are stale, writes arrive late and two
// processes may believe that they lead. The cache only says when there may be something
// to do. What to do is decided by a live list of all nodes, and the API server refuses
// the write if the node has changed since that list. A reboot takes two such writes: the
// first chooses the node, and from then on everyone counts it as unavailable; the second
// grants the reboot, by a list that was made after the first write.
//
// So among granted nodes, take the one whose list was made last. Each other one had been
// chosen before its own, earlier list was made, so the last list counted all of them. The
// budget was kept by that list. Therefore no stale cache, no second leader and no late
// write exceeds it. A grant that is over counts until one write takes it back: either the
// agent has begun before that, or it never does. So the budget is exceeded only by what is
// not granted here: a node fails or is deleted while the grant of another is on its way, or
// someone else gives a permission.
//
// A grant has an end, because an agent that was stopped or cut off must not reboot its node at
// another time. The clocks of the controller and of a node can differ by a minute. After that,
// the agent gives the grant back as soon as it runs, or else the controller takes it back; either
// is one write that makes it a request again. A node that gives a grant back asks for the next one
// a minute later, so a wrong clock does not get one grant after the other.
//
// README.md has a diagram of the annotations.
package main

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

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

var grantsTotal = promauto.With(legacyregistry.Registerer()).NewCounter(prometheus.CounterOpts{
	Name: "nodereboot_grants_total",
	Help: "Reboots granted to nodes.",
})

// Controller grants nodes their reboots. One sync takes one step of one node:
//
//	observe → decide → act → report
//
// Unlike the other controllers, it does not wait until its cache shows its own last write,
// because it decides each step by a live list.
type Controller struct {
	*worker.Loop

	config   Config
	kube     kubernetes.Interface
	recorder record.EventRecorder
	nodes    corelisters.NodeLister
	// firingAlerts returns the firing alerts that hold reboots back. It is nil if no alert
	// does.
	firingAlerts func(context.Context) ([]string, error)
	// alertRules returns the names of all alerts that could. It is nil if firingAlerts is.
	alertRules func(context.Context) ([]string, error)
	waiting    map[types.UID]string // why each node waits, as last recorded; used by sync alone
	hasLogged  bool                 // what flags select; used by sync alone

	mu             sync.Mutex
	lastGrant      time.Time               // by this process
	availableSince map[types.UID]time.Time // of each node
	neededSince    map[types.UID]time.Time // of each node that needs a reboot; see trackNeed
	usedSince      map[types.UID]use       // of each node that uses up a part of the budget
	lastReport     map[string]time.Time    // of each node's agent
	hold           Hold                    // as last found out
	refusals       map[types.UID]Refusal   // of each node that cannot be written
}

// NewController wires a controller to its informers and starts nothing. The Leases are those in
// the agents' namespace.
func NewController(config Config, kube kubernetes.Interface, recorder record.EventRecorder, nodes coreinformers.TypedNodeInformer, agents coordinationinformers.TypedLeaseInformer) (*Controller, error) {
	c := &Controller{
		config:         config,
		kube:           kube,
		recorder:       recorder,
		nodes:          nodes.Lister(),
		availableSince: map[types.UID]time.Time{},
		neededSince:    map[types.UID]time.Time{},
		usedSince:      map[types.UID]use{},
		lastReport:     map[string]time.Time{},
		refusals:       map[types.UID]Refusal{},
	}
	if config.PrometheusURL != "" {
		client, err := prometheusClient(config)
		if err != nil {
			return nil, fmt.Errorf("setting up the client of -prometheus-url: %w", err)
		}
		c.firingAlerts, c.alertRules = firingAlerts(config, client), alertRules(config, client)
	}
	c.Loop = worker.New(Name, c.sync)
	if err := c.watchNodes(nodes.TypedInformer()); err != nil {
		return nil, fmt.Errorf("setting up the cache of Nodes: %w", err)
	}
	if err := c.watchAgents(agents.TypedInformer()); err != nil {
		return nil, fmt.Errorf("setting up the cache of Leases: %w", err)
	}
	c.addGauges()
	return c, nil
}

// sync brings one node a step closer to its reboot, or records why all of them wait.
func (c *Controller) sync(ctx context.Context, _ cache.ObjectName) (requeueAfter time.Duration, err error) {
	observed := c.observe()
	c.logSelections(ctx, observed)
	decision, err := c.decide(ctx, observed)
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
	nodes, _ := c.nodes.List(labels.Everything()) // a cache returns no error
	return c.observed(nodes)
}

// observed adds to these nodes what is remembered.
func (c *Controller) observed(nodes []*corev1.Node) Observed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Observed{
		Config:         c.config,
		Now:            time.Now(),
		Nodes:          nodes,
		LastGrant:      c.lastGrant,
		AvailableSince: maps.Clone(c.availableSince),
		NeededSince:    maps.Clone(c.neededSince),
		LastReport:     maps.Clone(c.lastReport),
		Hold:           c.hold,
		Refusals:       maps.Clone(c.refusals),
	}
}

// decide decides on the next step. If there is one, it decides again by a live list of nodes.
// A step towards a reboot is decided once more, by an answer to what holds reboots back now.
// While something does, no nodes are listed.
func (c *Controller) decide(ctx context.Context, o Observed) (Decision, error) {
	d := Decide(o)
	if isTowardsReboot(d) && o.Hold.holds() {
		o.Hold = c.askHold(ctx)
		d = Decide(o)
	}
	if d.Step == Rest {
		return d, nil
	}
	fresh, err := c.recheckLive(ctx)
	if err != nil {
		return d, err
	}
	if d = Decide(fresh); isTowardsReboot(d) {
		fresh.Hold = c.askHold(ctx)
		fresh.Now = time.Now()
		d = Decide(fresh)
	}
	return d, nil
}

func isTowardsReboot(d Decision) bool { return d.Step == Choose || d.Step == Grant }

// recheckLive observes a live list of all nodes. The list is read page by page, all from
// the same moment, and no more of each node is kept than in the cache: a Node can take up
// 50 kB.
func (c *Controller) recheckLive(ctx context.Context) (Observed, error) {
	var nodes []*corev1.Node
	list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.kube.CoreV1().Nodes().List(ctx, options)
	}
	err := eachOf(ctx, list, metav1.ListOptions{}, func(node *corev1.Node) {
		strip(node)
		nodes = append(nodes, node)
	})
	if err != nil {
		return Observed{}, fmt.Errorf("listing nodes: %w", err)
	}
	return c.observed(nodes), nil
}

// eachOf lists objects page by page. An expired list is an error rather than one large page.
func eachOf[T runtime.Object](ctx context.Context, list pager.ListPageFunc, options metav1.ListOptions, do func(T)) error {
	pages := pager.New(list)
	pages.FullListIfExpired = false
	return pages.EachListItemWithAlloc(ctx, options, func(item runtime.Object) error {
		do(item.(T))
		return nil
	})
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
	after, err := c.kube.CoreV1().Nodes().Patch(ctx, d.Node.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	c.trackRefusal(d, err)
	if response.IsStale(err, corev1.Resource("nodes"), d.Node.Name) {
		return nil, worker.Deferred(fmt.Errorf("node %s has changed or is gone since the decision: %w", d.Node.Name, err))
	}
	if err != nil {
		return nil, fmt.Errorf("step %s of node %s: %w", d.Step, d.Node.Name, err)
	}
	if d.Step == Grant {
		grantsTotal.Inc()
		c.mu.Lock()
		c.lastGrant = time.Now()
		c.mu.Unlock()
	}
	return after, nil
}

// report records which step was taken, or why nodes wait, and returns when to sync next.
func (c *Controller) report(ctx context.Context, node *corev1.Node, d Decision) (requeueAfter time.Duration) {
	switch d.Step {
	case Rest:
		c.recordWaiting(d.Waiting)
		return d.RequeueAfter
	case Grant:
		c.recordGrant(ctx, node, d)
	case TakeBack:
		c.recordTakenBack(ctx, node, d)
	default:
		klog.FromContext(ctx).V(2).Info("Took a step", "step", d.Step, "node", klog.KObj(node))
	}
	return batchPeriod // the next step, by another list
}
