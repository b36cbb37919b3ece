// Package agent reboots the node that it runs on, once for each permission of the
// controller (nodereboot), and leaves the node as it was.
//
// It writes its record (package request) and the cordon of its own Node, removes a request that it
// carries out, and creates evictions of the Pods there and events. It never writes to another Node,
// never deletes a Pod, never removes a cordon that is not its own, and never grants itself a reboot.
//
// # Why a node reboots once for each permission
//
// Everything that the agent has to remember is in its record on the Node, so it can be killed at any
// moment. One write records that work for a grant has begun, with the present boot ID. The reboot command
// is run only while the boot ID is the recorded one, and after the time at which it is run has been
// recorded; a process that reads that time does not run the command. So an agent that is killed
// between this record and the command has failed. After a reboot, whatever its cause, the agent
// only finishes: the record says that the grant is done.
//
// That the node is drained is not recorded: others can write annotations, and draining twice
// does no harm, so a new process drains again. The write that cordons the node also records that
// the cordon is the agent's. If someone removes it, the agent gives the reboot up.
//
// # Steps
//
// decide.go says which step comes next; it is pure. Answer, Begin, Drain, Reboot and Finish follow each
// other. GiveUp replaces the last two if the node cannot be drained in time or must not be rebooted any
// more, or has the same boot ID when the reboot timeout has passed.
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
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

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
//	observe → decide → act
//
// and repeats that for one step after the other, until there is something to wait for.
type Agent struct {
	config Config
	kube   kubernetes.Interface
	nodes  corelisters.NodeLister
	host   Rebooter
	loop   *worker.Loop
	unable error // why the host cannot be rebooted; known before the first sync

	// Only sync reads and writes these; it has one object to sync.
	drain    drain     // of the present work
	outcome  string    // how the last reboot command has ended; empty if this process does not know
	waitedAt time.Time // since when it is not known whether there is a sentinel file; zero if it is
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
	if a.unable = a.host.Check(); a.unable != nil {
		klog.FromContext(ctx).Error(a.unable, "Cannot reboot this node")
	}
	return a.loop.Run(ctx, 1)
}

// sync takes one step after the other until there is something to wait for. The cache only says that there
// may be something to do; each step is decided by a live Node, or the API server's response to the
// previous step.
func (a *Agent) sync(ctx context.Context, _ cache.ObjectName) (requeueAfter time.Duration, err error) {
	node, err := a.nodes.Get(a.config.NodeName)
	if apierrors.IsNotFound(err) {
		return a.config.LookEvery, nil
	}
	if err != nil {
		return 0, err
	}
	var blocked *string
	for isLive := false; ; {
		o, err := a.observe(node)
		if err != nil {
			return pace.Sooner(retryDelay, a.config.LookEvery), worker.Deferred(err)
		}
		o.Blocked = blocked
		d := Decide(o)
		soon := pace.Sooner(d.RequeueAfter, a.config.LookEvery)
		switch {
		case d.Step == Rest:
			klog.FromContext(ctx).V(2).Info("Nothing to do", "until", d.Why)
			return soon, nil
		case !isLive:
			if node, err = a.kube.CoreV1().Nodes().Get(ctx, a.config.NodeName, metav1.GetOptions{}); err != nil {
				return 0, fmt.Errorf("reading the Node: %w", err)
			}
			isLive = true
		case d.Step == Look:
			if blocked, err = a.look(ctx); err != nil {
				return pace.Sooner(soon, retryDelay), err
			}
		case d.Step == Drain:
			if blocked = a.drainNode(ctx, node); blocked == nil && !a.drain.IsDone {
				return pace.Sooner(soon, retryDelay), nil
			}
			isLive = false // draining takes long
		default:
			if node, err = a.act(ctx, node, d); err != nil || node == nil {
				return pace.Sooner(soon, retryDelay), err
			}
			blocked = nil
		}
	}
}

// patience is how long it may be unknown whether there is a sentinel file before the record says so.
const patience = 30 * time.Second

// observe adds to the Node what else Decide needs. An error means that it is not known yet.
func (a *Agent) observe(node *corev1.Node) (Observed, error) {
	o := Observed{Now: time.Now(), Node: request.Read(node), Drain: a.drain.Drained, Outcome: a.outcome, Limits: a.config.Limits}
	bootID, bootErr := os.ReadFile(a.config.BootIDFile)
	if o.BootID = strings.TrimSpace(string(bootID)); o.BootID == "" && bootErr == nil {
		bootErr = fmt.Errorf("%s is empty", a.config.BootIDFile)
	}
	sentinel, sentinelErr := a.sentinel()
	o.Sentinel, o.IsBlind = sentinel, sentinelErr != nil
	if !errors.Is(sentinelErr, errSentinelUnknown) {
		a.waitedAt = time.Time{}
	} else if a.waitedAt.IsZero() {
		a.waitedAt = time.Now()
	}
	if !a.waitedAt.IsZero() && time.Since(a.waitedAt) < patience {
		return o, sentinelErr
	}
	if err := errors.Join(a.unable, bootErr, sentinelErr); err != nil {
		o.Unable = text.Clip(strings.ReplaceAll(err.Error(), "\n", "; "), maxMessage/2)
	}
	if !a.config.Drain {
		o.Drain.IsDone = true
	}
	return o, nil
}

// act takes a step that begins with a write to the Node, and returns the Node after it; nil if there is
// something to wait for before the next step.
func (a *Agent) act(ctx context.Context, node *corev1.Node, d Decision) (*corev1.Node, error) {
	klog.FromContext(ctx).Info("Taking a step", "step", d.Step, "why", d.Why)
	switch d.Step {
	case Begin:
		a.drain, a.outcome = drain{}, ""
	case Reboot:
		// The machine can go down at once, so this comes before the command. It comes before the
		// record, too: an agent that is killed between the record and the command has failed.
		message := "The node is drained and is being rebooted"
		if !a.config.Drain {
			message = "The node is being rebooted, without a drain"
		}
		if !a.drain.isSaid { // The write may have to be repeated.
			a.drain.isSaid = true
			a.record(ctx, node, corev1.EventTypeNormal, ReasonRebooting, message)
		}
	default:
	}
	after, err := a.write(ctx, node, d)
	if response.IsStale(err, corev1.Resource("nodes"), node.Name) {
		return nil, worker.Deferred(err)
	}
	if err != nil {
		return nil, fmt.Errorf("writing the Node for step %s: %w", d.Step, err)
	}
	switch d.Step {
	case Begin:
		a.record(ctx, node, corev1.EventTypeNormal, ReasonStarted, "The node will be cordoned, drained and rebooted")
	case GiveUp:
		a.record(ctx, node, corev1.EventTypeWarning, ReasonGivenUp, whyGivenUp(d))
	case Finish:
		a.recordFinished(ctx, node, d)
	case Reboot:
		return nil, a.reboot(ctx, after)
	default:
	}
	return after, nil
}

// reboot runs the reboot command.
func (a *Agent) reboot(ctx context.Context, node *corev1.Node) error {
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
		a.record(late, node, corev1.EventTypeWarning, ReasonFailed, fmt.Sprintf("The reboot command failed: %v", err))
		return worker.NoBackoff(fmt.Errorf("rebooting: %w", err))
	}
	return nil
}

// write patches the Node if it has not changed since the decision.
func (a *Agent) write(ctx context.Context, node *corev1.Node, d Decision) (*corev1.Node, error) {
	annotations := map[string]*string{request.Agent: request.Encode(d.Record)}
	if d.UsesRequest {
		annotations[request.Needed] = nil
	}
	var spec any
	if d.Unschedulable != nil {
		spec = map[string]any{"unschedulable": *d.Unschedulable}
	}
	body, err := patch.Merge(node, annotations, spec)
	if err != nil {
		return nil, err
	}
	return a.kube.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: Name})
}
