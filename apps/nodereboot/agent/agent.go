// Package agent reboots the node that it runs on, once for each permission of the
// controller (nodereboot), and leaves the node as it was.
//
// It writes five annotations (package request) and the cordon of its own Node, evictions
// of the Pods there, events, and a Lease that says that it runs. It never writes to
// another Node, never deletes a Pod, never removes a cordon that is not its own, and never
// grants itself a reboot.
//
// # Why a node reboots once for each permission
//
// Everything that the agent has to remember is on the Node, so it can be killed at any moment.
// One write removes the permission and records the present boot ID. The reboot command is run
// only while the boot ID is the recorded one, and after the time at which it is run has been
// recorded; a process that reads that time does not run the command. So an agent that is killed
// between this record and the command has failed. After a reboot, whatever its cause, the agent
// only finishes, and without another permission there is no other record.
//
// That the node is drained is not recorded: others can write annotations, and draining twice
// does no harm, so a new process drains again. Whose cordon it is, the record says, in the write
// that cordons. If someone removes the agent's cordon, the agent notes that, and cordons the node
// again only while it drains.
//
// # Steps
//
// decide.go says which step comes next; it is pure. Begin, Drain, Reboot and Finish follow each
// other. Undo and GiveUp replace the last two if the node cannot be drained in time, or has the
// same boot ID when the reboot timeout has passed.
package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/internal/text"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/pkg/kit/response"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
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
	nodes  corelisters.NodeLister
	host   Rebooter
	loop   *worker.Loop

	// Only sync reads and writes these; it has one object to sync.
	drained   string              // the record of the work for which the node was drained
	drainErr  error               // what kept the last attempt to drain from succeeding
	toEvict   sets.Set[types.UID] // the Pods that were there when the drain began; nil before
	toldOf    string              // the record of the work for which it was reported what a drain waits for
	doubtful  string              // the record that was written before the reboot command without an answer
	outcome   string              // how the last reboot command ended; empty if this process does not know
	rehearsed string              // what a dry run has gone through already
	unable    error               // why the host cannot be rebooted; known before the first sync
	// trouble is why nothing can be decided or rebooted, as last reported; empty if something can.
	trouble      string
	troubleSince time.Time
	isRestricted bool      // whether a policy was seen to restrict this agent, for the present request
	reported     time.Time // when the Lease was last renewed
}

// New wires an agent and starts nothing. The factory must be restricted to the node.
func New(config Config, kube kubernetes.Interface, factory kubeinformers.SharedInformerFactory, host Rebooter) (*Agent, error) {
	nodes := factory.Core().V1().Nodes()
	a := &Agent{config: config, kube: kube, nodes: nodes.Lister(), host: host}
	a.loop = worker.New(Name, a.sync)
	registration, err := nodes.TypedInformer().AddTypedEventHandler(worker.Follow(func(node *corev1.Node) {
		a.loop.Add(cache.MetaObjectToName(node))
	}))
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
	return a.loop.Run(ctx, 1)
}

// takeSteps takes one step after the other until there is something to wait for. Each is
// decided by the API server's response to the step before. It returns the Node after them;
// nil if there is none, or if that is not known.
func (a *Agent) takeSteps(ctx context.Context) (node *corev1.Node, requeueAfter time.Duration, err error) {
	node, err = a.nodes.Get(a.config.NodeName)
	if apierrors.IsNotFound(err) {
		return nil, a.config.LookEvery, nil
	}
	if err != nil {
		return nil, 0, err
	}
	for isLive := false; ; {
		d, err := a.decide(node)
		a.reportTrouble(ctx, node, err)
		switch {
		case errors.Is(err, errSentinelUnknown):
			return nil, pace.Sooner(retryDelay, a.config.LookEvery), worker.Deferred(err)
		case err != nil:
			return nil, a.config.LookEvery, worker.NoBackoff(err)
		case d.Step == Rest:
			klog.FromContext(ctx).V(2).Info("Nothing to do", "waitingFor", d.WaitsFor)
			return node, pace.Sooner(d.RequeueAfter, a.config.LookEvery), nil
		case !isLive: // the cache only says that there may be something to do
			if node, err = a.recheckLive(ctx); err != nil {
				return nil, 0, err
			}
			if a.config.DryRun && a.wasRehearsed(node, d) {
				return nil, a.config.LookEvery, nil
			}
			isLive = true
			continue
		}
		if node, err = a.act(ctx, node, d); err != nil || node == nil {
			return nil, pace.Sooner(d.RequeueAfter, pace.Sooner(retryDelay, a.config.LookEvery)), err
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

// decide adds to the Node what else there is to know, and decides.
func (a *Agent) decide(node *corev1.Node) (Decision, error) {
	bootID, err := os.ReadFile(a.config.BootIDFile)
	if err != nil {
		return Decision{Step: Rest}, err
	}
	sentinel, err := a.sentinel()
	if err != nil {
		return Decision{Step: Rest}, err
	}
	return Decide(Observed{
		Now:        time.Now(),
		Node:       node,
		BootID:     strings.TrimSpace(string(bootID)),
		Sentinel:   sentinel,
		Drained:    !a.config.Drain || a.drained != "" && a.drained == node.Annotations[request.InProgress],
		IsDoubtful: a.doubtful != "" && a.doubtful == node.Annotations[request.InProgress],
		Unable:     a.unable != nil,
		Limits:     a.config.Limits,
	})
}

// act takes a step and returns the Node after it; nil if there is something to wait for
// before the next step.
func (a *Agent) act(ctx context.Context, node *corev1.Node, d Decision) (*corev1.Node, error) {
	klog.FromContext(ctx).Info("Taking a step", "step", d.Step, "dryRun", a.config.DryRun)
	if d.Step != Drain {
		a.toEvict = nil // the Node is, or may have been, schedulable before the next drain
	}
	switch d.Step {
	case Drain:
		return a.drain(ctx, node, d.RequeueAfter)
	case GiveUp:
		// The node keeps its part of the budget until this is reported.
		if err := a.record(ctx, node, corev1.EventTypeWarning, ReasonGivenUp, a.whyGivenUp(node, d)); err != nil {
			return nil, fmt.Errorf("reporting that the reboot is given up: %w", err)
		}
	case Reboot:
		// The machine can go down at once, so this comes before the command. It comes before the
		// record, too: an agent that is killed between the record and the command has failed.
		message := "The node is drained and is being rebooted"
		if !a.config.Drain {
			message = "The node is being rebooted, without a drain"
		}
		a.tryRecord(ctx, node, corev1.EventTypeNormal, ReasonRebooting, message)
		a.outcome, a.doubtful = "", *d.Annotations[request.InProgress]
	default:
	}
	after, err := a.write(ctx, node, d)
	isStale := response.IsStale(err, corev1.Resource("nodes"), node.Name)
	if err == nil || isStale {
		a.doubtful = ""
	}
	if isStale {
		a.drained = "" // the Node may have been schedulable in the meantime
		return nil, worker.Deferred(err)
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
		klog.FromContext(ctx).Info("Dry run: the system would be rebooted now")
		return nil
	}
	// The system, while it shuts down, tells this process to end; the command must go on.
	command, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.config.Limits.Reboot)
	defer cancel()
	err := a.host.Reboot(command)
	switch {
	case err == nil:
		a.outcome = "the reboot command ended with success"
	case !errors.Is(ctx.Err(), context.Canceled): // otherwise this process is being ended, as the command may be
		a.outcome = text.Clip("the reboot command failed: "+err.Error(), maxMessage/2)
		// The command may have taken longer than a sync may.
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainAttempt)
		defer cancel()
		a.tryRecord(late, node, corev1.EventTypeWarning, ReasonFailed, fmt.Sprintf("The reboot command failed: %v", err))
		return worker.NoBackoff(fmt.Errorf("rebooting: %w", err))
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
