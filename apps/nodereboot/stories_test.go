package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
	"nicoleh.io/k8s-controller/pkg/kittest/startup"
)

func TestMain(m *testing.M) {
	// The default handlers also pace errors by the time since the last one, and a bubble's
	// clock is decades away from the one outside.
	utilruntime.ErrorHandlers = nil
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// Each story in testdata/stories is a promise, which its name says. The controller and the agents that ship play
// it, on machines that are played. See package script for the commands. After an edit, run it with -rewrite. These
// stories have more of them, in which a NAME can be a pattern:
//
//	flags                           what the controller is started with, a flag on each line
//	nodes NAME... [times=N]         Nodes that are Ready; NAME-00 and so on if there are N
//	agents NAME... [FLAG...]        starts agents there, with these flags
//	pods NODE NAME... [grace=SECONDS] [image=IMAGE] [volume=emptyDir]   Pods of a StatefulSet that run on a node
//	kill NAME...                    kills them
//	needed NAME... [as=VALUE]       requests reboots; a VALUE such as +1h is a time
//	not-needed NAME...              takes that back
//	host NAME WORD...               sentinel, no-sentinel: the sentinel file; sentinel-returns: a reboot makes another one
//	                                stays-up, command-fails=WHY [takes=DURATION]: what the reboot command does
//	                                unable: there is no such command; no-boot-id
//	                                sentinel-stays: a reboot does not remove it
//	                                reboot: somebody reboots it
//	alerts ANSWER...                what Prometheus answers, one after the other, and the last one again and again:
//	                                none, unknown, or an alert
//	asked                           shows how often it was asked since that was last shown
//	slow-lists DURATION             how long a list of Nodes takes the controller
//	messages [PART]                 shows the messages of all events that have PART, since they were last shown
//
// A machine goes down 5 s after the reboot command, and is Ready again 30 s later. When an agent is killed, nothing
// that it still does has an effect.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		c := &cast{hosts: map[string]*host{}}
		script.Theater{
			Kinds: []apiserver.Kind{apiserver.Nodes(), apiserver.EventObjects()},
			Tell:  map[string]func(*unstructured.Unstructured) string{"Node": tellNode, "Pod": tellPod},
			Do:    c.do,
			Start: c.start,
		}.Play(t, path)
	})
}

// tellNode says of a Node what matters here.
func tellNode(obj *unstructured.Unstructured) string {
	node := read(obj)
	words := []string{map[bool]string{true: "Ready", false: "not Ready"}[node.IsReady()]}
	add := func(isSo bool, word string) {
		if isSo {
			words = append(words, word)
		}
	}
	add(node.Spec.Unschedulable, "cordoned")
	add(node.IsNeeded(), "needs a reboot")
	add(node.IsDeclined(), "must not reboot")
	stage := node.Stage()
	add(stage != request.NoGrant, map[request.Stage]string{request.Chosen: "chosen", request.MayReboot: "may reboot", request.AtWork: "at work"}[stage])
	add(node.Status.NodeInfo.BootID != "", node.Status.NodeInfo.BootID)
	return strings.Join(words, ", ")
}

func tellPod(obj *unstructured.Unstructured) string {
	node, _, _ := unstructured.NestedString(obj.Object, "spec", "nodeName")
	phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
	if obj.GetDeletionTimestamp() != nil {
		phase = "is ending"
	}
	return cmp.Or(node, "nowhere") + ": " + phase
}

func read(obj *unstructured.Unstructured) request.Node {
	node := &corev1.Node{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, node); err != nil {
		panic(err) // the model has decoded it before
	}
	return request.Read(node)
}

// cast plays everybody in a story who is neither the controller nor an agent, nor in package script.
type cast struct {
	t       *testing.T
	cluster *script.Cluster
	flags   []string
	hosts   map[string]*host

	mu       sync.Mutex
	recorder record.EventRecorder // of the story; nil before the controller starts
	told     []string
	alerts   []string // what Prometheus answers next; nil if there is none
	asked    int
	slow     time.Duration
}

// start starts the controller as the program does.
func (c *cast) start(t *testing.T, config *rest.Config, recorder record.EventRecorder) (stop func()) {
	t.Helper()
	c.locked(func() { c.recorder = recorder })
	descriptor := NewDescriptor()
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	descriptor.AddFlags(flags)
	if err := errors.Join(flags.Parse(c.flags), descriptor.Validate()); err != nil {
		t.Fatal(err)
	}
	client := rest.CopyConfig(config)
	client.Transport = &delayed{config.Transport, c}
	d := &manager.Dependencies{Kube: kubernetes.NewForConfigOrDie(client), Config: client, Recorder: teller{recorder, c}}
	controller, err := descriptor.New(d)
	if err != nil {
		t.Fatal(err)
	}
	if c.alerts != nil {
		controller.(*Controller).firingAlerts = c.prometheus
	}
	return script.Run(t, func(ctx context.Context) error {
		defer d.StartCaches(ctx, controller)()
		return controller.Run(ctx, 1)
	})
}

// delayed delays the controller's lists of Nodes.
type delayed struct {
	http.RoundTripper
	*cast
}

func (d *delayed) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/nodes") && !r.URL.Query().Has("watch") {
		d.mu.Lock()
		slow := d.slow
		d.mu.Unlock()
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-time.After(slow):
		}
	}
	return d.RoundTripper.RoundTrip(r)
}

// prometheus says which alerts fire.
func (c *cast) prometheus(context.Context) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	answer := c.alerts[0]
	if len(c.alerts) > 1 {
		c.alerts = c.alerts[1:]
	}
	switch answer {
	case "none":
		return nil, nil
	case "unknown":
		return nil, errors.New("no answer")
	default:
		return []string{answer}, nil
	}
}

// teller is the controller's recorder. It adds to a reason why the node waits.
type teller struct {
	record.EventRecorder
	*cast
}

// Eventf implements record.EventRecorder.
func (t teller) Eventf(about runtime.Object, eventType, reason, format string, args ...any) {
	t.tell(about.(*corev1.Node).Name, eventType, reason, fmt.Sprintf(format, args...))
}

func (c *cast) tell(node, eventType, reason, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	message = strings.ReplaceAll(message, c.hosts[node].dir, "")
	c.told = append(c.told, node+": "+message)
	if _, why, isWaiting := strings.Cut(message, "Waiting to reboot ("); isWaiting {
		why, _, _ = strings.Cut(why, ")")
		reason += "/" + why
	}
	if c.recorder != nil {
		c.recorder.Event(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, eventType, reason, message)
	}
}

// do carries out a command of these stories.
func (c *cast) do(t *testing.T, cluster *script.Cluster, d *datadriven.TestData) (shown string, isKnown bool) {
	t.Helper()
	if c.cluster == nil {
		c.t, c.cluster = t, cluster
	}
	var names, flags []string
	values := map[string]string{}
	for _, arg := range d.CmdArgs {
		value := strings.Join(arg.Vals, ", ")
		switch {
		case strings.HasPrefix(arg.Key, "-"):
			flags = append(flags, arg.Key+"="+value)
		case len(arg.Vals) > 0:
			values[arg.Key] = value
		default:
			names = append(names, arg.Key)
		}
	}
	each := func(do func(*host)) {
		for _, h := range c.named(names) {
			do(h)
		}
	}
	switch d.Cmd {
	case "flags":
		c.flags = strings.Split(d.Input, "\n")
	case "nodes":
		c.addNodes(names, values["times"])
	case "agents":
		each(func(h *host) { h.startAgent(flags) })
	case "pods":
		c.addPods(names[0], names[1:], values)
	case "kill":
		each((*host).killAgent)
	case "needed":
		value := cmp.Or(values["as"], "yes")
		if after, err := time.ParseDuration(value); err == nil {
			value = time.Now().Add(after).UTC().Format(time.RFC3339)
		}
		each(func(h *host) { h.edit(with(request.Needed, value)) })
	case "not-needed":
		each(func(h *host) { h.edit(func(n *corev1.Node) { delete(n.Annotations, request.Needed) }) })
	case "host":
		c.named(names[:1])[0].happens(d, names[1:], values)
	case "alerts":
		c.locked(func() { c.alerts = names })
	case "slow-lists":
		c.locked(func() { c.slow, _ = time.ParseDuration(names[0]) })
	case "asked":
		c.locked(func() { shown, c.asked = strconv.Itoa(c.asked), 0 })
	case "messages":
		shown = c.showTold(names)
	default:
		return "", false
	}
	return shown, true
}

func (c *cast) locked(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

// showTold returns what events have said since it was last called; only what has these words, if there are any.
func (c *cast) showTold(words []string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var shown, rest []string
	for _, message := range c.told {
		if strings.Contains(message, strings.Join(words, " ")) {
			shown = append(shown, message)
		} else {
			rest = append(rest, message)
		}
	}
	c.told = rest
	return strings.Join(slices.Compact(shown), "\n")
}

func TestStartup(t *testing.T) {
	startup.Test(t, func(ctx context.Context, args []string) error { return newProgram().Run(ctx, args) })
}
