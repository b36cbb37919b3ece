// Package nodereboot decides which nodes may reboot now, such that no more of them
// are unavailable at a time than an operator allows. What a reboot consists of is
// the business of an agent on each node: see package agent, and package request for
// how the two talk to each other.
//
// It writes annotations of Nodes, one node at a time, and events. It never cordons,
// drains or reboots anything, and never takes back what it has granted.
//
// The cache only says when there may be something to do. What it is, is decided by a
// live list of all nodes; and the node that it is done to must not have changed
// since, or the API server refuses. A node is first chosen, from which moment on
// everybody counts it as unavailable, and granted its reboot by a list that was made
// after that. So of any nodes that are granted theirs, the one whose list was the
// last was counted together with all the others: no stale cache, no second leader,
// and no write that arrives late exceeds the budget. It can be exceeded by what is
// not granted here: a node that fails or is deleted while another's grant is on its
// way, and a permission that somebody else gives.
package nodereboot

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// Name is that of the controller, wherever it has to be named.
const Name = "nodereboot"

const fieldManager = Name + "-controller"

// The reasons of its events.
const (
	ReasonGranted = "RebootGranted"
	ReasonWaiting = "RebootWaiting"
)

// Controller grants nodes their reboots, one step in each sync:
//
//	observe → decide → ask → fresh → decide → act → events
//
// Unlike the other controllers of this program it has one thing to sync, all nodes
// together, because that is what the budget is about.
type Controller struct {
	*worker.Loop

	config   Config
	kube     kubernetes.Interface
	nodes    coreinformers.TypedNodeInformer
	recorder events.EventRecorder
	clock    clock.WithTicker
	grants   metrics.Total

	alerts func(context.Context, time.Time) ([]string, error) // that fire, and hold reboots back; nil if none does

	// Only sync reads and writes these.
	told map[types.UID]string // why a node waits, as was told last

	mu        sync.Mutex
	lastGrant time.Time               // of this process
	available map[types.UID]time.Time // since when each node has been available
	heard     map[string]time.Time    // when each node's agent reported last
	hold      Hold                    // as was found out last
}

// all is the name of what is synced.
var all = cache.NewObjectName("", "nodes")

// burst is how long changes of nodes are gathered before they are looked at.
const burst = 100 * time.Millisecond

// NewController wires a controller to its informers and starts nothing. The one of Leases has to
// be restricted to the agents' namespace.
func NewController(config Config, kube kubernetes.Interface, nodes coreinformers.TypedNodeInformer, leases coordinationinformers.TypedLeaseInformer, recorder events.EventRecorder, clock clock.WithTicker) (*Controller, error) {
	c := &Controller{
		config:   config,
		kube:     kube,
		nodes:    nodes,
		recorder: recorder,
		clock:    clock,
		grants:   metrics.NewTotal("nodereboot_grants_total", "Reboots that were granted to nodes.", ""),
		told:     map[types.UID]string{},

		available: map[types.UID]time.Time{},
		heard:     map[string]time.Time{},
	}
	if config.PrometheusURL != "" {
		var err error
		if c.alerts, err = prometheusAlerts(config.PrometheusURL, config.Alerts); err != nil {
			return nil, fmt.Errorf("-nodereboot-prometheus-url: %w", err)
		}
	}
	c.Loop = worker.New(Name, c.sync, worker.WithClock(clock), worker.WithObserver(metrics.For(Name).Sync),
		worker.WithKeys(slices.Values([]cache.ObjectName{all})))
	if err := nodes.Informer().SetTransform(informer.Stripped(Strip)); err != nil {
		return nil, fmt.Errorf("setting up the cache: %w", err)
	}
	look := func() { c.AddAfter(all, burst) }
	registration, err := nodes.TypedInformer().AddTypedEventHandler(coreinformers.NodeHandlerFuncs{
		AddFunc: func(node *corev1.Node) {
			c.see(nil, node)
			look()
		},
		UpdateFunc: func(before, after *corev1.Node) {
			c.see(before, after)
			if !request.IsNeeded(before) && request.IsNeeded(after) {
				c.AddUrgent(all) // somebody asks for something new
			} else {
				look()
			}
		},
		DeleteFunc: func(deleted coreinformers.DeletedNode) {
			if deleted.OptionalObj != nil {
				c.see(deleted.OptionalObj, nil)
			}
			look()
		},
	})
	if err != nil {
		return nil, fmt.Errorf("following events: %w", err)
	}
	if err := leases.Informer().SetTransform(informer.Stripped(func(lease *coordinationv1.Lease) {
		lease.Annotations, lease.Labels, lease.OwnerReferences, lease.ManagedFields = nil, nil, nil, nil
	})); err != nil {
		return nil, fmt.Errorf("setting up the cache: %w", err)
	}
	reports, err := leases.TypedInformer().AddTypedEventHandler(coordinationinformers.LeaseHandlerFuncs{
		AddFunc:    func(lease *coordinationv1.Lease) { c.hear(nil, lease, look) },
		UpdateFunc: func(before, after *coordinationv1.Lease) { c.hear(before, after, look) },
		DeleteFunc: func(deleted coordinationinformers.DeletedLease) { c.forget(deleted.GetObjectName().Name) },
	})
	if err != nil {
		return nil, fmt.Errorf("following agents: %w", err)
	}
	c.WaitFor(registration.HasSyncedChecker(), reports.HasSyncedChecker())
	c.count()
	return c, nil
}

// sync brings one node a step closer to its reboot, or tells all why they wait.
func (c *Controller) sync(ctx context.Context, _ cache.ObjectName) (again time.Duration, err error) {
	cached, err := c.nodes.Lister().List(labels.Everything())
	if err != nil {
		return 0, err
	}
	decision := Decide(c.observed(cached))
	if (decision.Step == Choose || decision.Step == Grant) && (c.alerts != nil || len(c.config.BlockingPods) > 0) {
		if err := c.ask(ctx); err != nil {
			return 0, err
		}
	}
	if decision.Step != Rest {
		if decision, err = c.fresh(ctx); err != nil {
			return 0, err
		}
	}
	if decision.Step == Rest {
		c.tell(decision.Waiting)
		return decision.Again, nil
	}
	if err := c.act(ctx, decision); err != nil {
		return 0, err
	}
	return burst, nil // the next step, by a new list
}

func (c *Controller) observed(nodes []*corev1.Node) Observed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Observed{Config: c.config, Now: c.clock.Now(), Nodes: nodes, LastGrant: c.lastGrant, Available: maps.Clone(c.available), Heard: maps.Clone(c.heard), Hold: c.hold}
}

// see notes since when a node has been available, of which only the time that passes
// here counts: a node's clock may be wrong, above all after a reboot. For a node that
// is seen for the first time, what it says is all that is known.
func (c *Controller) see(before, after *corev1.Node) {
	isAvailable := func(node *corev1.Node) bool { return request.IsReady(node) && !request.IsGranted(node) }
	c.mu.Lock()
	defer c.mu.Unlock()
	switch now := c.clock.Now(); {
	case before != nil && (after == nil || before.UID != after.UID):
		delete(c.available, before.UID)
		if after != nil {
			c.available[after.UID] = now
		}
	case !isAvailable(after):
		delete(c.available, after.UID)
	case before == nil:
		c.available[after.UID] = now
		if since := request.ReadySince(after); since.Before(now) {
			c.available[after.UID] = since
		}
	case !isAvailable(before):
		c.available[after.UID] = now
	}
}

// hear notes that an agent has renewed its Lease, and has all nodes looked at if it was
// silent before. Again it is the time that passes here that counts, and the agent's own
// only where it is seen for the first time.
func (c *Controller) hear(before, after *coordinationv1.Lease, look func()) {
	renewed := after.Spec.RenewTime
	if renewed == nil || before != nil && renewed.Equal(before.Spec.RenewTime) {
		return
	}
	at := c.clock.Now()
	c.mu.Lock()
	last, isKnown := c.heard[after.Name]
	wasSilent := !isKnown || at.Sub(last) > request.ReportedWithin
	if before == nil && renewed.Time.Before(at) {
		c.heard[after.Name] = renewed.Time
	} else {
		c.heard[after.Name] = at
	}
	c.mu.Unlock()
	if wasSilent {
		look()
	}
}

func (c *Controller) forget(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.heard, node)
}

// fresh decides by what the API server has now. The list is made page by page, all of
// one moment, and no more is kept of a node than of a cached one: a Node may have 50 kB.
func (c *Controller) fresh(ctx context.Context) (Decision, error) {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.kube.CoreV1().Nodes().List(ctx, options)
	})
	pages.FullListIfExpired = false // then it is tried again
	var nodes []*corev1.Node
	err := pages.EachListItemWithAlloc(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		node := item.(*corev1.Node)
		Strip(node)
		nodes = append(nodes, node)
		return nil
	})
	if err != nil {
		return Decision{}, fmt.Errorf("listing nodes: %w", err)
	}
	return Decide(c.observed(nodes)), nil
}

// act does the step in one write, which the API server refuses if the node is not as
// it was when that was decided.
func (c *Controller) act(ctx context.Context, d Decision) error {
	node := d.Node
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             node.UID,
		"resourceVersion": node.ResourceVersion,
		"annotations":     d.Annotations,
	}})
	if err != nil {
		return err
	}
	after, err := c.kube.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if informer.IsBehind(err) {
		return worker.Requeue(fmt.Errorf("node %s has changed or gone since it was its turn: %w", node.Name, err))
	}
	if err != nil {
		return fmt.Errorf("step %s of node %s: %w", d.Step, node.Name, err)
	}
	if d.Step != Grant {
		klog.FromContext(ctx).V(2).Info("Turn written down", "step", d.Step, "node", klog.KObj(after))
		return nil
	}
	c.grants.Inc()
	c.mu.Lock()
	c.lastGrant = c.clock.Now()
	c.mu.Unlock()
	delete(c.told, node.UID)
	others := len(d.Unavailable) - 1 // without the node itself
	klog.FromContext(ctx).Info("Reboot granted", "node", klog.KObj(after), "unavailable", others, "budget", d.Budget)
	c.recorder.Eventf(after, nil, corev1.EventTypeNormal, ReasonGranted, "Grant",
		"May reboot now: %d of %d nodes may be unavailable, and %d others are", d.Budget, d.Nodes, others)
	return nil
}

// tell says of each node why it waits, if that is news.
func (c *Controller) tell(waiting []Waiting) {
	told := map[types.UID]string{}
	for _, w := range waiting {
		told[w.Node.UID] = w.Reason
		if c.told[w.Node.UID] != w.Reason {
			c.recorder.Eventf(w.Node, nil, corev1.EventTypeNormal, ReasonWaiting, "Wait", "Waits for its reboot (%s): %s", w.Reason, w.Note)
		}
	}
	c.told = told
}

// count has the gauges counted from the cache whenever they are asked for.
func (c *Controller) count() {
	decide := func() Decision {
		cached, err := c.nodes.Lister().List(labels.Everything())
		if err != nil {
			utilruntime.HandleError(err)
		}
		return Decide(c.observed(cached))
	}
	metrics.Count("nodereboot_waiting_nodes", "Nodes that need a reboot and must not have it yet, by the reason.", []string{"reason"}, func(add func(int, ...string)) {
		n := map[string]int{}
		d := decide()
		for _, w := range d.Waiting {
			n[w.Reason]++
		}
		if d.Step == Choose || d.Step == Grant {
			n[InLine]++
		}
		for _, reason := range Reasons {
			add(n[reason], reason)
		}
	})
	metrics.Count("nodereboot_unavailable_nodes", "Nodes that count as unavailable, by the reason.", []string{"reason"}, func(add func(int, ...string)) {
		n := map[string]int{}
		for _, u := range decide().Unavailable {
			n[u.Reason]++
		}
		for _, reason := range Unavailabilities {
			add(n[reason], reason)
		}
	})
	metrics.Count("nodereboot_budget_nodes", "How many nodes may be unavailable.", nil, func(add func(int, ...string)) {
		add(decide().Budget)
	})
}
