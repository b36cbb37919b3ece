package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/backoff"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// Name is the agent's name in logs and events, and its field manager.
const Name = "reboot-agent"

// retryDelay is how long the agent waits before it retries an eviction, or a drain.
const retryDelay = 5 * time.Second

// Agent is the agent of one node. One sync goes
//
//	observe → decide → act → report
//
// and repeats that for one step after the other, until there is something to wait for.
type Agent struct {
	config Config
	kube   kubernetes.Interface
	nodes  informer.Cache[*corev1.Node]
	host   Rebooter
	clock  clock.WithTicker

	loop *worker.Loop

	// Only sync reads and writes these; it has one object to sync.
	drained    string // the record of the work for which the node was drained
	drainErr   error  // what kept the last attempt to drain from succeeding
	rehearsed  string // what a dry run has gone through already
	unable     error  // why the host cannot be rebooted; known before the first sync
	isReported bool   // whether that was reported
}

// New wires an agent and starts nothing. The informer must be restricted to the node.
func New(config Config, kube kubernetes.Interface, nodes informer.Cache[*corev1.Node], host Rebooter, clock clock.WithTicker) (*Agent, error) {
	a := &Agent{config: config, kube: kube, nodes: nodes, host: host, clock: clock}
	a.loop = worker.New(Name, a.sync, worker.WithClock(clock), worker.WithKeys(slices.Values([]cache.ObjectName{a.name()})))
	queue := func() { a.loop.Add(a.name()) }
	registration, err := nodes.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*corev1.Node]{
		AddFunc: func(*corev1.Node) { queue() },
		UpdateFunc: func(before, after *corev1.Node) {
			if request.IsGranted(before) == request.IsGranted(after) {
				queue()
			} else {
				a.loop.AddUrgent(a.name())
			}
		},
		DeleteFunc: func(cache.DeletedObject[*corev1.Node]) { queue() },
	})
	if err != nil {
		return nil, fmt.Errorf("adding event handlers: %w", err)
	}
	a.loop.WaitFor(registration.HasSyncedChecker())
	return a, nil
}

// Run works until ctx ends, and returns when the current step has ended. The informer is
// started by the caller.
func (a *Agent) Run(ctx context.Context) error {
	a.unable = a.host.Check()
	ctx, cancel := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	reporting.Go(func() { a.keepLease(ctx) })
	defer reporting.Wait()
	defer cancel()
	return a.loop.Run(ctx, 1)
}

func (a *Agent) name() cache.ObjectName { return cache.NewObjectName("", a.config.NodeName) }

// sync takes one step after the other until there is something to wait for. Each is
// decided by the API server's response to the step before.
func (a *Agent) sync(ctx context.Context, _ cache.ObjectName) (requeueAfter time.Duration, err error) {
	node := a.nodes.Get("", a.config.NodeName)
	if node == nil {
		return a.config.LookEvery, nil
	}
	a.reportUnable(ctx, node)
	d, err := a.decide(node)
	if errors.Is(err, errSentinelUnknown) {
		klog.FromContext(ctx).V(2).Info("Waiting", "err", err)
		return backoff.MinRequeue(retryDelay, a.config.LookEvery), nil
	}
	if err != nil {
		return a.config.LookEvery, worker.Terminal(err)
	}
	if d.Step != Rest {
		if node, err = a.recheckLive(ctx); err != nil {
			return 0, err
		}
	}
	if a.config.DryRun && a.wasRehearsed(node, d) {
		return a.config.LookEvery, nil
	}
	for {
		if d, err = a.decide(node); err != nil {
			return a.config.LookEvery, worker.Terminal(err)
		}
		if d.Step == Rest {
			klog.FromContext(ctx).V(2).Info("Nothing to do", "waitingFor", d.WaitsFor)
			return backoff.MinRequeue(d.RequeueAfter, a.config.LookEvery), nil
		}
		if node, err = a.act(ctx, node, d); err != nil || node == nil {
			return backoff.MinRequeue(d.RequeueAfter, backoff.MinRequeue(retryDelay, a.config.LookEvery)), err
		}
	}
}

// recheckLive reads the Node from the API server.
func (a *Agent) recheckLive(ctx context.Context) (*corev1.Node, error) {
	node, err := a.kube.CoreV1().Nodes().Get(ctx, a.config.NodeName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the Node: %w", err)
	}
	return node, nil
}

// observe adds to the Node what else there is to know.
func (a *Agent) observe(node *corev1.Node) (Observed, error) {
	bootID, err := os.ReadFile(a.config.BootIDFile)
	if err != nil {
		return Observed{}, err
	}
	sentinel, err := a.sentinel()
	return Observed{
		Now:      a.clock.Now(),
		Node:     node,
		BootID:   strings.TrimSpace(string(bootID)),
		Sentinel: sentinel,
		Drained:  a.drained != "" && a.drained == node.Annotations[request.InProgress],
		Unable:   a.unable != nil,
		Limits:   a.config.Limits,
	}, err
}

// decide observes and decides.
func (a *Agent) decide(node *corev1.Node) (Decision, error) {
	observed, err := a.observe(node)
	if err != nil {
		return Decision{Step: Rest}, err
	}
	return Decide(observed)
}

// act takes a step and returns the Node after it; nil if there is something to wait for
// before the next step.
func (a *Agent) act(ctx context.Context, node *corev1.Node, d Decision) (*corev1.Node, error) {
	klog.FromContext(ctx).Info("Taking a step", "step", d.Step, "dryRun", a.config.DryRun)
	switch d.Step {
	case Drain:
		return a.drain(ctx, node, d.RequeueAfter)
	case GiveUp:
		// The node keeps its part of the budget until this is reported.
		if err := a.record(ctx, node, corev1.EventTypeWarning, ReasonGivenUp, a.whyGivenUp(d)); err != nil {
			return nil, fmt.Errorf("reporting that the reboot is given up: %w", err)
		}
	default:
	}
	after, err := a.write(ctx, node, d)
	if apierrors.IsConflict(err) {
		a.drained = "" // the Node may have been schedulable in the meantime
		return nil, worker.Requeue(err)
	}
	if err != nil {
		return nil, fmt.Errorf("writing the Node for step %s: %w", d.Step, err)
	}
	if d.Step == Cordon {
		a.drained, a.drainErr = "", nil // Pods may have come before
	}
	a.report(ctx, node, d)
	if d.Step == Reboot {
		return nil, a.reboot(ctx, after)
	}
	return after, nil
}

// reboot runs the reboot command.
func (a *Agent) reboot(ctx context.Context, node *corev1.Node) error {
	if a.config.DryRun {
		klog.FromContext(ctx).Info("The system would be rebooted now; nothing was changed")
		return nil
	}
	a.tryRecord(ctx, node, corev1.EventTypeNormal, ReasonRebooting, "The node is drained and is being rebooted")
	// The system, while it shuts down, tells this process to end; the command must go on.
	command, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.config.Limits.Reboot)
	defer cancel()
	if err := a.host.Reboot(command); err != nil && ctx.Err() == nil {
		a.tryRecord(ctx, node, corev1.EventTypeWarning, ReasonFailed, fmt.Sprintf("The reboot command failed and will be run again after %s: %v", a.config.Limits.Reboot, err))
		return worker.Terminal(fmt.Errorf("rebooting: %w", err))
	}
	return nil
}

// write patches the Node if it is still as it was when that was decided.
func (a *Agent) write(ctx context.Context, node *corev1.Node, d Decision) (*corev1.Node, error) {
	var spec any
	if d.Unschedulable != nil {
		spec = map[string]any{"unschedulable": *d.Unschedulable}
	}
	body, err := patch.Merge(node, d.Annotations, spec)
	if err != nil {
		return nil, err
	}
	options := metav1.PatchOptions{FieldManager: Name}
	if a.config.DryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	after, err := a.kube.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, body, options)
	if err == nil && a.config.DryRun {
		after = written(node, d) // the response lacks the steps before
	}
	return after, err
}

// written returns the Node as it is after the decision's write.
func written(node *corev1.Node, d Decision) *corev1.Node {
	after := node.DeepCopy()
	for name, value := range d.Annotations {
		if value == nil {
			delete(after.Annotations, name)
		} else {
			metav1.SetMetaDataAnnotation(&after.ObjectMeta, name, *value)
		}
	}
	after.Spec.Unschedulable = ptr.Deref(d.Unschedulable, after.Spec.Unschedulable)
	return after
}

// wasRehearsed reports whether a dry run has gone through the step already.
func (a *Agent) wasRehearsed(node *corev1.Node, d Decision) bool {
	if d.Step == Rest {
		return false
	}
	now := string(d.Step) + state(node)
	if a.rehearsed == now {
		return true
	}
	a.rehearsed = now
	return false
}

// state returns what the Node says about its reboot.
func state(node *corev1.Node) string {
	return fmt.Sprintf("%q %q %q", node.Annotations[request.Needed], node.Annotations[request.Now], node.Annotations[request.InProgress])
}
