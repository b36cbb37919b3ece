// Package agent reboots the one node that it runs on, once for each time that the
// controller (package nodereboot) allows it, and leaves the node as it was.
//
// It writes three annotations (package request) and the cordon of its own Node,
// evictions of the Pods there, events, and a Lease that says that it runs. It never touches another Node, never
// deletes a Pod, never takes away a cordon that is not its own, and never grants
// itself a reboot.
//
// All that it has to remember is on the Node, so it may be killed at any moment.
// decide.go says what comes next; it is pure.
package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/drain"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/worker"
	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// Name is the agent's in logs and events, and who its writes are by.
const Name = "reboot-agent"

// The reasons of its events.
const (
	ReasonRequested = "RebootRequested" // because of the sentinel
	ReasonStarted   = "RebootStarted"
	ReasonRebooting = "Rebooting"
	ReasonFailed    = "RebootFailed" // the command did; it will be run again
	ReasonGivenUp   = "RebootGivenUp"
	ReasonFinished  = "RebootFinished"
	ReasonUnable    = "RebootImpossible" // this agent could not reboot its host
)

// Config is what an operator can choose.
type Config struct {
	// NodeName is that of the Node that this runs on.
	NodeName string
	// LeaseNamespace is where the Lease is by which the agent says that it runs.
	LeaseNamespace string
	// BootIDFile holds what is another after every boot.
	BootIDFile string
	// SentinelFile asks for a reboot by being there; none if empty.
	SentinelFile string
	// SentinelState, if not empty, is where WatchSentinel says whether it is there, so
	// that the agent itself need not see the host's directory.
	SentinelState string
	// LookEvery is how often these two are looked at.
	LookEvery time.Duration
	Limits    Limits
	// Force also evicts Pods that nobody will make anew.
	Force bool
	// DeleteEmptyDirData also evicts Pods that have an emptyDir, with what is in it.
	DeleteEmptyDirData bool
	// DryRun asks the API server whether each step would be allowed, logs it, and
	// changes nothing.
	DryRun bool
}

const (
	// attempt is how long it is drained before the Node is looked at again.
	attempt = 20 * time.Second
	// pause is how long it takes until an eviction, or a drain, is tried again.
	pause = 5 * time.Second
	// mostNote is how many bytes the API server takes as the note of an event.
	mostNote = 1024
)

// Agent is the agent of one node.
type Agent struct {
	config Config
	kube   kubernetes.Interface
	nodes  coreinformers.TypedNodeInformer
	host   Rebooter
	clock  clock.WithTicker

	loop *worker.Loop

	// Only sync reads and writes these; it has one thing to sync.
	drained   string // the record of the work for which the node is drained
	trouble   error  // that the last attempt to drain ended with
	rehearsed string // what a dry run has gone through already
	unable    error  // why the host could not be rebooted; known before the first sync
	isSaid    bool   // whether that was told
}

// New wires an agent and starts nothing. The informer has to be restricted to the
// node.
func New(config Config, kube kubernetes.Interface, nodes coreinformers.TypedNodeInformer, host Rebooter, clock clock.WithTicker) (*Agent, error) {
	a := &Agent{config: config, kube: kube, nodes: nodes, host: host, clock: clock}
	a.loop = worker.New(Name, a.sync, worker.WithClock(clock), worker.WithKeys(slices.Values([]cache.ObjectName{a.name()})))
	look := func() { a.loop.Add(a.name()) }
	registration, err := nodes.TypedInformer().AddTypedEventHandler(coreinformers.NodeHandlerFuncs{
		AddFunc: func(*corev1.Node) { look() },
		UpdateFunc: func(before, after *corev1.Node) {
			if request.IsGranted(before) == request.IsGranted(after) {
				look()
			} else {
				a.loop.AddUrgent(a.name())
			}
		},
		DeleteFunc: func(coreinformers.DeletedNode) { look() },
	})
	if err != nil {
		return nil, fmt.Errorf("following events: %w", err)
	}
	a.loop.WaitFor(registration.HasSyncedChecker())
	return a, nil
}

// Run works until ctx ends, and returns when the step under way has. The informer is
// started by the caller.
func (a *Agent) Run(ctx context.Context) error {
	a.unable = a.host.Check()
	ctx, cancel := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	reporting.Go(func() { a.keepReporting(ctx) })
	defer reporting.Wait()
	defer cancel()
	return a.loop.Run(ctx, 1)
}

func (a *Agent) name() cache.ObjectName { return cache.NewObjectName("", a.config.NodeName) }

// sync does one step after the other until there is something to wait for. Each is
// decided by what the API server answered to the one before.
func (a *Agent) sync(ctx context.Context, _ cache.ObjectName) (again time.Duration, err error) {
	node, err := a.nodes.Lister().Get(a.config.NodeName)
	if apierrors.IsNotFound(err) {
		return a.config.LookEvery, nil
	} else if err != nil {
		return 0, err
	}
	a.complain(ctx, node)
	d, err := a.decide(node)
	if errors.Is(err, errSentinelUnknown) {
		klog.FromContext(ctx).V(2).Info("Waiting", "err", err)
		return worker.MinRequeue(pause, a.config.LookEvery), nil
	}
	if err != nil {
		return a.config.LookEvery, worker.Terminal(err)
	}
	if d.Step != Rest {
		if node, err = a.kube.CoreV1().Nodes().Get(ctx, a.config.NodeName, metav1.GetOptions{}); err != nil {
			return 0, fmt.Errorf("reading the Node: %w", err)
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
			klog.FromContext(ctx).V(2).Info("Nothing to do", "waitingFor", d.Wait)
			return worker.MinRequeue(d.Again, a.config.LookEvery), nil
		}
		if node, err = a.act(ctx, node, d); err != nil || node == nil {
			return worker.MinRequeue(d.Again, worker.MinRequeue(pause, a.config.LookEvery)), err
		}
	}
}

// complain tells once that the host could not be rebooted, if that is so.
func (a *Agent) complain(ctx context.Context, node *corev1.Node) {
	if a.unable != nil && !a.isSaid {
		a.isSaid = true
		klog.FromContext(ctx).Error(a.unable, "This host could not be rebooted: no reboot is asked for or begun")
		a.report(ctx, node, corev1.EventTypeWarning, ReasonUnable, "The agent could not reboot this node, and asks for nothing: "+a.unable.Error())
	}
}

// decide reads what is to know besides the Node, and decides.
func (a *Agent) decide(node *corev1.Node) (Decision, error) {
	bootID, err := os.ReadFile(a.config.BootIDFile)
	if err != nil {
		return Decision{Step: Rest}, err
	}
	o := Observed{
		Now:     a.clock.Now(),
		Node:    node,
		BootID:  strings.TrimSpace(string(bootID)),
		Drained: a.drained != "" && a.drained == node.Annotations[request.InProgress],
		Unable:  a.unable != nil,
		Limits:  a.config.Limits,
	}
	if o.Sentinel, err = a.sentinel(); err != nil {
		return Decision{Step: Rest}, err
	}
	return Decide(o)
}

// act does a step and returns the Node after it; none if there is something to wait
// for before the next.
func (a *Agent) act(ctx context.Context, node *corev1.Node, d Decision) (*corev1.Node, error) {
	klog.FromContext(ctx).Info("Next step", "step", d.Step, "dryRun", a.config.DryRun)
	switch d.Step {
	case Drain:
		return a.drain(ctx, node, d.Again)
	case GiveUp:
		note := a.whyGivenUp(d)
		if err := a.tell(ctx, node, corev1.EventTypeWarning, ReasonGivenUp, note); err != nil {
			return nil, fmt.Errorf("telling that the reboot is given up: %w", err) // the slot is kept until it is told
		}
	default:
	}
	after, err := a.write(ctx, node, d)
	if apierrors.IsConflict(err) {
		a.drained = "" // it may have been schedulable in between
		return nil, worker.Requeue(err)
	}
	if err != nil {
		return nil, fmt.Errorf("writing the Node for step %s: %w", d.Step, err)
	}
	switch d.Step {
	case Cordon:
		a.drained, a.trouble = "", nil // Pods may have come while it was not
	case Request:
		a.report(ctx, node, corev1.EventTypeNormal, ReasonRequested, a.config.SentinelFile+" asks for a reboot")
	case Begin:
		a.report(ctx, node, corev1.EventTypeNormal, ReasonStarted, "The node will be cordoned, drained and rebooted")
	case Reboot:
		return nil, a.goDown(ctx, after)
	case Finish:
		eventType, note := corev1.EventTypeNormal, "The node was rebooted and is Ready"
		if again := d.Annotations[request.Needed]; again != nil {
			eventType, note = corev1.EventTypeWarning, fmt.Sprintf("%s, but %s is still there, and asks again at %s", note, a.config.SentinelFile, *again)
		}
		a.report(ctx, node, eventType, ReasonFinished, note)
	default:
	}
	return after, nil
}

// whyGivenUp is what people are told of a reboot that does not come about.
func (a *Agent) whyGivenUp(d Decision) string {
	if a.unable != nil {
		return "The node was given back, as this agent could not reboot it: " + a.unable.Error()
	}
	note := fmt.Sprintf("The node could not be drained within %s, and was given back; it asks again at %s", a.config.Limits.Drain, *d.Annotations[request.Needed])
	if a.trouble != nil {
		note += ". The last obstacle: " + a.trouble.Error()
	}
	return note
}

// goDown runs the reboot command.
func (a *Agent) goDown(ctx context.Context, node *corev1.Node) error {
	if a.config.DryRun {
		klog.FromContext(ctx).Info("The system would be rebooted now; nothing was changed")
		return nil
	}
	a.report(ctx, node, corev1.EventTypeNormal, ReasonRebooting, "The node is drained and goes down")
	// What makes the system go down also asks this process to end, and has to go on.
	command, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.config.Limits.Reboot)
	defer cancel()
	if err := a.host.Reboot(command); err != nil && ctx.Err() == nil {
		a.report(ctx, node, corev1.EventTypeWarning, ReasonFailed, fmt.Sprintf("The reboot command is run again after %s, as it failed: %v", a.config.Limits.Reboot, err))
		return worker.Terminal(fmt.Errorf("rebooting: %w", err))
	}
	return nil
}

// drain evicts the Pods of the node, as kubectl drain does. What does not succeed is
// tried again, for as long as the decision lets it.
func (a *Agent) drain(ctx context.Context, node *corev1.Node, left time.Duration) (*corev1.Node, error) {
	if err := a.evict(ctx, min(left, attempt)); err != nil {
		klog.FromContext(ctx).Info("Not drained yet", "err", err)
		if a.trouble == nil || left > pause { // a short last attempt finds nothing out
			a.trouble = err
		}
		return nil, nil
	}
	a.drained = node.Annotations[request.InProgress]
	if a.config.DryRun {
		return node, nil
	}
	return a.kube.CoreV1().Nodes().Get(ctx, a.config.NodeName, metav1.GetOptions{})
}

func (a *Agent) evict(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var said, obstacles bytes.Buffer // one line each; drain writes them one at a time
	h := &drain.Helper{
		Ctx:                  ctx,
		Client:               a.kube,
		Force:                a.config.Force,
		GracePeriodSeconds:   -1, // the Pod's own
		IgnoreAllDaemonSets:  true,
		DeleteEmptyDirData:   a.config.DeleteEmptyDirData,
		Timeout:              timeout,
		EvictErrorRetryDelay: pause,
		Out:                  &said,
		ErrOut:               &obstacles,
		OnPodDeletionOrEvictionStarted: func(pod *corev1.Pod, _ bool) {
			klog.FromContext(ctx).Info("Evicting", "pod", klog.KObj(pod))
		},
	}
	if a.config.DryRun {
		h.DryRunStrategy = util.DryRunServer
	}
	supported, err := drain.CheckEvictionSupport(a.kube)
	if err != nil {
		return fmt.Errorf("finding out whether Pods can be evicted: %w", err)
	}
	if supported.Empty() {
		return fmt.Errorf("the API server knows no evictions, and Pods are not deleted without")
	}
	pods, errs := h.GetPodsForDeletion(a.config.NodeName)
	if len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	if err := h.DeleteOrEvictPods(pods.Pods()); err != nil {
		// What was in its way is more to the point than that an attempt took too long.
		lines := strings.Split(strings.TrimSpace(obstacles.String()), "\n")
		slices.Sort(lines)
		return fmt.Errorf("evicting Pods: %s: %w", strings.Join(slices.Compact(lines), "; "), err)
	}
	if a.config.DryRun {
		klog.FromContext(ctx).Info("Pods would be evicted", "pods", klog.KObjSlice(pods.Pods()))
	}
	return nil
}

// write patches the Node, if it is still as it was when that was decided.
func (a *Agent) write(ctx context.Context, node *corev1.Node, d Decision) (*corev1.Node, error) {
	metadata := map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion}
	body := map[string]any{"metadata": metadata}
	if d.Annotations != nil { // null would remove all that there are
		metadata["annotations"] = d.Annotations
	}
	if d.Unschedulable != nil {
		body["spec"] = map[string]any{"unschedulable": *d.Unschedulable}
	}
	patch, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	options := metav1.PatchOptions{FieldManager: Name}
	if a.config.DryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	after, err := a.kube.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, options)
	if err == nil && a.config.DryRun {
		after = written(node, d) // the answer knows nothing of the steps before
	}
	return after, err
}

// written is the Node as it is after the decision's write.
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

// report tells what may also remain untold.
func (a *Agent) report(ctx context.Context, node *corev1.Node, eventType, reason, note string) {
	if err := a.tell(ctx, node, eventType, reason, note); err != nil {
		klog.FromContext(ctx).Info("Event lost", "reason", reason, "note", note, "err", err)
	}
}

// tell writes an event about the Node, and returns when it is written. The name is
// made of what it is about, so what is told again after a restart is there once. What
// the API server refuses will never be told, and is no error.
func (a *Agent) tell(ctx context.Context, node *corev1.Node, eventType, reason, note string) error {
	klog.FromContext(ctx).Info("Event", "reason", reason, "note", note, "dryRun", a.config.DryRun)
	if a.config.DryRun {
		return nil
	}
	hash := fnv.New64a()
	fmt.Fprint(hash, node.UID, reason, state(node))
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      fmt.Sprintf("%s.%x", strings.TrimRight(node.Name[:min(len(node.Name), 230)], "-."), hash.Sum64()),
		},
		EventTime:           metav1.NewMicroTime(a.clock.Now()),
		ReportingController: Name,
		ReportingInstance:   a.config.NodeName[:min(len(a.config.NodeName), 128)],
		Action:              "Reboot",
		Reason:              reason,
		Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
		Note:                strings.ToValidUTF8(note[:min(len(note), mostNote)], ""),
		Type:                eventType,
	}
	_, err := a.kube.EventsV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{FieldManager: Name})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		klog.FromContext(ctx).Error(err, "Event refused", "reason", reason, "note", note)
		return nil
	}
	return err
}

// wasRehearsed tells whether a dry run has gone through the step already.
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

// state is what the Node says about its reboot.
func state(node *corev1.Node) string {
	return fmt.Sprintf("%q %q %q", node.Annotations[request.Needed], node.Annotations[request.Now], node.Annotations[request.InProgress])
}
