package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"nicoleh.io/k8s-controller/apps/nodereboot/agent"
	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

// host is the machine of a Node.
type host struct {
	*cast
	name, dir string

	// The cast's mu guards these.
	boot           int
	flags          []string // of its agent
	process        *process // of its agent; nil if it does not run
	stays, returns bool     // what a reboot does to the sentinel file
	staysUp        bool
	fails          string // why the reboot command fails
	takes          time.Duration
	unable         error
	commands       map[int64]int // how often the reboot command was run, by grant

	killAt    int             // the write at which its agent is killed; 0 for none
	isAfter   bool            // whether that write is carried out
	meanwhile func(write int) // what others do after a write of its agent; nil for nothing
	writes    int
}

// addNodes stores Nodes of these names, or that many of one, whose kubelets say Ready.
func (c *cast) addNodes(names []string, times string) {
	if n, _ := strconv.Atoi(times); n > 0 {
		name := names[0]
		names = nil
		for i := range n {
			names = append(names, fmt.Sprintf("%s-%02d", name, i))
		}
	}
	for _, name := range names {
		h := &host{cast: c, name: name, dir: c.t.TempDir(), boot: 1, commands: map[int64]int{}}
		c.hosts[name] = h
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		h.sayReady(node)
		h.write("boot_id", node.Status.NodeInfo.BootID)
		c.cluster.Set(node)
		c.t.Cleanup(h.endAgent)
	}
}

// addPods stores Pods of a StatefulSet that run on a node.
func (c *cast) addPods(node string, names []string, values map[string]string) {
	grace, err := strconv.ParseInt(cmp.Or(values["grace"], "30"), 10, 64)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, name := range names {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: script.Namespace, Name: name}}
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "owner", UID: "owner", Controller: new(true)}}
		pod.Spec = corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "c", Image: cmp.Or(values["image"], "image")}}}
		if values["volume"] != "" {
			pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}
		pod.Status.Phase = corev1.PodRunning
		c.cluster.Set(pod)
	}
}

// named returns the hosts of these names, which can be patterns.
func (c *cast) named(patterns []string) (found []*host) {
	for _, pattern := range patterns {
		before := len(found)
		for _, name := range slices.Sorted(maps.Keys(c.hosts)) {
			if matches, err := path.Match(pattern, name); matches && err == nil {
				found = append(found, c.hosts[name])
			}
		}
		if len(found) == before {
			c.t.Fatalf("there is no host %s", pattern)
		}
	}
	return found
}

func (h *host) edit(change func(*corev1.Node)) { script.Edit(h.cluster, "", h.name, change) }

func (h *host) node() request.Node {
	return request.Read(script.Get[corev1.Node](h.cluster, "", h.name))
}

func (h *host) file(name string) string { return filepath.Join(h.dir, name) }

func (h *host) write(name, content string) {
	if err := errors.Join(os.WriteFile(h.file(name), []byte(content), 0o600), os.Chtimes(h.file(name), time.Now(), time.Now())); err != nil {
		h.t.Fatal(err)
	}
}

// sayReady is what its kubelet says.
func (h *host) sayReady(n *corev1.Node) {
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	n.Status.NodeInfo.BootID = fmt.Sprint("boot ", h.boot)
}

// happens lets something happen to the machine.
func (h *host) happens(d *datadriven.TestData, words []string, values map[string]string) {
	for _, word := range append(words, slices.Sorted(maps.Keys(values))...) {
		switch word {
		case "sentinel":
			h.write("reboot-required", "")
		case "no-sentinel":
			_ = os.Remove(h.file("reboot-required"))
		case "sentinel-stays":
			h.stays = true
		case "sentinel-returns":
			h.returns = true
		case "stays-up":
			h.staysUp = true
		case "command-fails":
			h.staysUp, h.fails = true, values[word]
		case "takes":
			h.takes, _ = time.ParseDuration(values[word])
		case "unable":
			h.unable = agent.Command{"/no/such/program"}.Check()
		case "no-boot-id":
			h.write("boot_id", "")
		case "reboot":
			h.goDown()
		default:
			d.Fatalf(h.t, "nothing on a host is %s", word)
		}
	}
}

// goDown reboots the machine.
func (h *host) goDown() {
	h.killAgent()
	h.edit(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
	time.AfterFunc(25*time.Second, func() {
		h.locked(func() { h.boot++ })
		h.write("boot_id", fmt.Sprint("boot ", h.boot))
		switch {
		case h.returns:
			h.write("reboot-required", "")
		case !h.stays:
			_ = os.Remove(h.file("reboot-required"))
		}
		h.startAgent(h.flags)
	})
	time.AfterFunc(30*time.Second, func() { h.edit(h.sayReady) })
}

// process is one of a host's agent.
type process struct {
	*host
	cancel  context.CancelFunc
	running sync.WaitGroup
	isDead  bool // nothing that it still does has any effect
}

var errKilled = errors.New("the agent was killed")

// startAgent starts the agent as the program does.
func (h *host) startAgent(args []string) {
	var config agent.Config
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	agent.AddFlags(flags, &config)
	own := []string{"-node-name=" + h.name, "-boot-id-file=" + h.file("boot_id"), "-sentinel-file=" + h.file("reboot-required")}
	if err := errors.Join(flags.Parse(append(own, args...)), config.Validate()); err != nil {
		h.t.Fatal(err)
	}
	p := &process{host: h}
	kube := kubernetes.NewForConfigOrDie(&rest.Config{Transport: p, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}})
	nodes := kubeinformers.NewSharedInformerFactoryWithOptions(kube, 0, kubeinformers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, h.name).String()
	}))
	a, err := agent.New(config, kube, nodes, p)
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	p.cancel = cancel
	h.locked(func() { h.flags, h.process = args, p })
	nodes.StartWithContext(ctx)
	p.running.Go(func() {
		if err := a.Run(ctx); err != nil {
			h.t.Error(err)
		}
		nodes.Shutdown()
	})
}

// killAgent kills the agent, if it runs.
func (h *host) killAgent() {
	h.locked(func() {
		if h.process != nil {
			h.process.isDead = true
			h.process.cancel()
		}
	})
}

// endAgent also waits for its end.
func (h *host) endAgent() {
	h.killAgent()
	if h.process != nil {
		h.process.running.Wait()
	}
}

// RoundTrip implements http.RoundTripper: it sends a request of the agent, and tells its events.
func (p *process) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(time.Millisecond) // so that no two events have one name
	var event corev1.Event
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/events") {
		body, err := io.ReadAll(r.Body)
		if err := errors.Join(err, json.Unmarshal(body, &event)); err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	write, isDead := 0, false
	p.locked(func() {
		if isDead = p.isDead; !isDead && r.Method != http.MethodGet {
			p.writes++
			write = p.writes
		}
	})
	isKilled := write > 0 && write == p.killAt
	if isKilled {
		p.killAgent()
		time.AfterFunc(time.Second, func() { p.startAgent(p.flags) })
	}
	if isDead || isKilled && !p.isAfter {
		return nil, errKilled
	}
	if event.Reason != "" {
		p.tell(p.name, event.Type, event.Reason, event.Message)
	}
	response, err := p.cluster.RoundTrip(r)
	if write > 0 && p.meanwhile != nil {
		p.meanwhile(write)
	}
	if isKilled {
		return nil, errKilled
	}
	return response, err
}

// Check implements agent.Rebooter.
func (p *process) Check() error { return p.unable }

// Reboot implements agent.Rebooter.
func (p *process) Reboot(context.Context) error {
	id, times, isDead := p.node().Grant.ID, 0, false
	p.locked(func() {
		if isDead = p.isDead; !isDead {
			p.commands[id]++
			times = p.commands[id]
		}
	})
	if isDead {
		return errKilled
	}
	if times > 1 {
		p.t.Errorf("the reboot command is run %d times for grant %d of %s", times, id, p.name)
	}
	time.Sleep(p.takes)
	if p.fails != "" {
		return errors.New(p.fails)
	}
	if !p.staysUp {
		time.AfterFunc(5*time.Second, p.goDown)
	}
	return nil
}
