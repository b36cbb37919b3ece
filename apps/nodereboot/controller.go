// Command nodereboot decides which nodes may reboot now, so that no more of them are
// unavailable at a time than an operator allows. An agent on each node carries out the
// reboot: see package agent, and package request for how the two communicate.
//
// It writes annotations of Nodes, one node at a time, and events. It never cordons,
// drains or reboots anything, and takes a grant back only after its end, or when nobody wants it.
//
// The protocol keeps the budget although caches are stale, writes arrive late and two
// processes may believe that they lead. The cache only says when there may be something
// to do. What to do is decided by a live list of all nodes, and the API server refuses
// the write if the node has changed since that list. A reboot takes two such writes: the
// first chooses the node, and from then on everyone counts it as unavailable; the second
// allows the reboot, by a list that was made after the first write, and after the node's agent
// has answered that it is there.
//
// So consider the granted nodes that were allowed by the latest list. Every other granted node
// was chosen before its own, earlier list was made, so the latest list counted it. That list
// kept the budget: while too many nodes are unavailable, it allows none, not even in place of
// a node that it passes over. Therefore no stale cache, no second leader and no late write
// exceeds the budget. A grant that is over counts until a write takes it back: the agent has
// begun before that write, or never does. So only what is not granted here can exceed the
// budget: a node fails or is deleted while the grant of another is on its way, or someone else
// gives a permission.
//
// A grant has an end, because an agent that was stopped or cut off must not reboot its node
// later. The clocks of the controller and of a node can differ by a minute. After that,
// the agent does not begin, and the controller takes the grant back.
//
// README.md has a diagram of the annotations.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/internal/text"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
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

// Controller grants nodes their reboots. One sync takes one step of each node that has one:
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
	told         map[types.UID]told // why each node waits; only sync uses it

	mu       sync.Mutex
	hold     Hold                  // the last answer
	refusals map[types.UID]Refusal // of nodes that could not be written
}

// NewController wires a controller to its informer and starts nothing.
func NewController(config Config, kube kubernetes.Interface, recorder record.EventRecorder, nodes coreinformers.TypedNodeInformer) (*Controller, error) {
	c := &Controller{config: config, kube: kube, recorder: recorder, nodes: nodes.Lister(), refusals: map[types.UID]Refusal{}}
	if config.PrometheusURL != "" {
		client, err := prometheusClient(config)
		if err != nil {
			return nil, fmt.Errorf("setting up the client of -prometheus-url: %w", err)
		}
		c.firingAlerts = firingAlerts(config, client)
	}
	c.Loop = worker.New(Name, c.sync)
	if err := c.watchNodes(nodes.TypedInformer()); err != nil {
		return nil, fmt.Errorf("setting up the cache of Nodes: %w", err)
	}
	c.addGauges()
	return c, nil
}

// sync brings nodes a step closer to their reboots, and records why the others wait.
func (c *Controller) sync(ctx context.Context, _ cache.ObjectName) (requeueAfter time.Duration, err error) {
	decision, err := c.decide(ctx, c.observe())
	if err != nil {
		return 0, err
	}
	err = c.act(ctx, decision)
	requeueAfter = pace.Sooner(decision.RequeueAfter, c.recordWaiting(ctx, decision.Waiting))
	if len(decision.Steps) > 0 {
		requeueAfter = batchPeriod // the next steps, by another list
	}
	return requeueAfter, err
}

// observe reads all nodes from the cache.
func (c *Controller) observe() Observed {
	nodes, _ := c.nodes.List(labels.Everything()) // a cache returns no error
	return c.observed(nodes)
}

// observed adds what the controller remembers to these nodes.
func (c *Controller) observed(nodes []*corev1.Node) Observed {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := Observed{Config: c.config, Now: time.Now(), Hold: c.hold, Refusals: map[types.UID]Refusal{}}
	for _, node := range nodes {
		read := request.Read(node)
		o.Nodes = append(o.Nodes, read)
		if refusal, isKnown := c.refusals[node.UID]; isKnown && (read.IsNeeded() || read.Stage() != request.NoGrant) {
			o.Refusals[node.UID] = refusal
		}
	}
	c.refusals = maps.Clone(o.Refusals) // the others are forgotten
	return o
}

// decide decides on the next steps. If there are any, it decides again by a live list of nodes.
// Before steps towards a reboot, it also asks what holds reboots back now. While something does,
// it lists no nodes.
func (c *Controller) decide(ctx context.Context, o Observed) (Decision, error) {
	d := Decide(o)
	if isTowardsReboot(d) && o.Hold.holds() {
		o.Hold = c.askHold(ctx)
		d = Decide(o)
	}
	if len(d.Steps) == 0 {
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

func isTowardsReboot(d Decision) bool {
	return slices.ContainsFunc(d.Steps, func(s Step) bool { return s.Action == Choose || s.Action == Allow })
}

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

// act takes the steps. Each is one write, which the API server refuses if the node has changed since the
// live list. A node that cannot be written does not delay the others.
func (c *Controller) act(ctx context.Context, d Decision) error {
	var failures []error
	for _, step := range d.Steps {
		body, err := patch.Merge(step.Node.Node, map[string]*string{request.Granted: request.Encode(step.Grant)}, nil)
		if err != nil {
			return err
		}
		after, err := c.kube.CoreV1().Nodes().Patch(ctx, step.Node.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
		c.noteRefusal(ctx, step, err)
		switch {
		case err == nil:
			c.recordStep(ctx, d, step, after)
		case !response.IsRefusal(err):
			failures = append(failures, fmt.Errorf("step %s of node %s: %w", step.Action, step.Node.Name, err))
		}
	}
	return errors.Join(failures...)
}

const (
	// refusedFor is how long a node is passed over after a write was refused a second time. It doubles each
	// time, up to maxRefused.
	refusedFor = 5 * time.Minute
	maxRefused = time.Hour
)

// noteRefusal notes whether the API server lets the controller write a node. A conflict is a refusal, too: the
// first one is normal, but another write can always come first. A refusal is forgotten when Allow or TakeBack is
// accepted, but not Choose: a policy can refuse only some values.
func (c *Controller) noteRefusal(ctx context.Context, step Step, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid := step.Node.UID
	switch refusal := c.refusals[uid]; {
	case err == nil && (step.Action == Allow || step.Action == TakeBack):
		delete(c.refusals, uid)
	case response.IsRefusal(err):
		klog.FromContext(ctx).Info("Node not written", "node", klog.KObj(step.Node.Node), "step", step.Action, "err", err)
		refusal.Action, refusal.Note = step.Action, "the Node cannot be written: "+text.Clip(err.Error(), maxError)
		if refusal.Times++; refusal.lasts() {
			refusal.Until = time.Now().Add(min(refusedFor<<min(refusal.Times-2, 4), maxRefused))
		}
		c.refusals[uid] = refusal
	}
}
