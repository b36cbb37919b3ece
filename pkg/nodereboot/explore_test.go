package nodereboot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/explore"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/nodereboot/agent"
	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// These tests look at every order in which things can happen: see pkg/kit/explore. The
// controllers and the agents are the shipped code. The rest is modeled:
//
//   - A host is a Lease in the namespace hosts-<node>. Its holder is the boot ID, and its
//     transitions are the reboots that a command has caused. To run the command is to create a
//     Lease with the name of the boot in the namespace commands-<node>. Then the host goes down
//     at some time, which ends the agent.
//   - An agent reports by a Lease, which the world renews for it.
//   - The API server accepts the agents' events at once. Nodes have no Pods, or one that the
//     agent does not evict.
//   - A process that begins to lead knows the Nodes and Leases as if it had just listed them.

const (
	exploredNamespace = "agents"
	// tick is how long everything takes that takes some time. The limits are a few of it.
	tick = 10 * time.Second
	// askedFor is an annotation of people: how many reboots they have requested.
	askedFor = "example.com/asked-for"
	// mayStay is an annotation of people who have withdrawn a request.
	mayStay = "example.com/may-stay"
	// unplugged is an annotation of a host that people have unplugged.
	unplugged = "example.com/unplugged"
	// keptCordoned is an annotation of people who have cordoned the node.
	keptCordoned = "example.com/kept-cordoned"
)

var (
	nodesResource  = corev1.Resource("nodes")
	podsResource   = corev1.Resource("pods")
	leasesResource = coordinationv1.Resource("leases")
)

// explored is the controller with the nodes a and b, of which one may be unavailable at a
// time. These have an agent and a request for a reboot.
func explored(t *testing.T, names ...string) explore.Setup {
	s := unattended(names...)
	s.World = []explore.Actor{{Name: "the world", Moves: movesOfWorld}}
	for _, name := range names {
		// An agent waits for Pods to be gone.
		s.Programs = append(s.Programs, explore.Program{Name: agentOf(name), Waits: true, New: newExploredAgent(t, name)})
	}
	return s
}

// unattended is the same with agents that are modeled, too: they need two writes for a reboot.
func unattended(names ...string) explore.Setup {
	s := explore.Setup{
		Kinds:    []apiserver.Kind{apiserver.Nodes(), apiserver.Pods(), apiserver.Leases()},
		Programs: []explore.Program{{Name: "the controller", Elected: true, New: newExplored}},
		World:    []explore.Actor{{Name: "the world", Moves: movesOfWorld}, {Name: "an agent", Moves: movesOfAgents}},
		Edits:    []explore.Actor{{Name: "somebody", Moves: editsOfPeople}},
		Checks:   explore.Checks{Stored: checkStored, Rest: checkRest},
		Tick:     tick,
		Horizon:  request.ReportedWithin + tick,
	}
	for _, name := range []string{"a", "b"} {
		n := exploredNode(name)
		if !slices.Contains(names, name) {
			n.Object.(*corev1.Node).Annotations = map[string]string{askedFor: "0", mayStay: "yes"}
		}
		s.Objects = append(s.Objects, n, exploredLease(hosts(name), name), exploredLease(exploredNamespace, name))
	}
	return s
}

// movesOfAgents are those of agents of which only the writes to the Nodes count.
func movesOfAgents(w explore.World) (moves []explore.Move) {
	for _, n := range explore.All[corev1.Node](w, nodesResource) {
		boot := bootOf(w, n.Name)
		move := func(did string, w explore.World, change func(*corev1.Node)) {
			moves = append(moves, explore.Move{Did: did + n.Name, After: explore.Update(w, agent.Name, nodesResource, "", n.Name, "", change)})
		}
		if n.Annotations[request.InProgress] != "" && isUp(w, n) {
			move("finishes the reboot of ", w, func(n *corev1.Node) { delete(n.Annotations, request.InProgress) })
		}
		if n.Annotations[request.Now] != "" {
			move("begins the reboot of ", rebooted(w, n.Name, false), func(n *corev1.Node) {
				delete(n.Annotations, request.Needed)
				delete(n.Annotations, request.Now)
				n.Annotations[request.InProgress] = boot
			})
		}
	}
	return moves
}

func hosts(node string) string    { return "hosts-" + node }
func commands(node string) string { return "commands-" + node }
func agentOf(node string) string  { return "the agent of " + node }

func exploredNode(name string) explore.Object {
	n := node(name, needed, with(askedFor, "1"))
	n.UID, n.ResourceVersion = "", ""
	n.Status.NodeInfo.BootID = bootID(1)
	return explore.Object{Manager: "people", Object: n, UID: types.UID("uid-of-" + name)}
}

// exploredLease is a Lease that the agent of a node renews, or the host of the node.
func exploredLease(namespace, name string) explore.Object {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if namespace == exploredNamespace {
		l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Date(2222, 2, 22, 12, 0, 0, 0, time.UTC)))
	} else {
		l.Spec.HolderIdentity, l.Spec.LeaseTransitions = ptr.To(bootID(1)), ptr.To[int32](0)
	}
	return explore.Object{Manager: "people", Object: l}
}

const bootFormat = "boot-%d"

func bootID(n int) string { return fmt.Sprintf(bootFormat, n) }

// newExplored makes the controller as newFor does, with a way to all that its writes depend on.
func newExplored(d manager.Dependencies) (explore.Instance, error) {
	kube, err := kubernetes.NewForConfig(manager.Protobuf(d.Config))
	if err != nil {
		return explore.Instance{}, err
	}
	nodes := preflight.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("nodes")}
	leases := preflight.Resource{GroupVersionResource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Namespace: exploredNamespace}
	t := tracked{leases: informer.NewCache[*coordinationv1.Lease](d.Caches, leases, kube.CoordinationV1().Leases(exploredNamespace), &coordinationv1.Lease{}, 0)}
	config := Config{MaxUnavailable: intstr.FromInt32(1), AgentNamespace: exploredNamespace}
	t.Controller, err = NewController(config, kube.CoreV1().Nodes(), kube.CoreV1().Pods(metav1.NamespaceAll), informer.NewCache[*corev1.Node](d.Caches, nodes, kube.CoreV1().Nodes(), &corev1.Node{}, 0), t.leases, d.Recorder, d.Clock)
	if err != nil {
		return explore.Instance{}, err
	}
	return explore.Instance{Loop: t.Loop, Memory: map[string]explore.Memory{"tracked": explore.MemoryOf(t.state, t.setState)}}, nil
}

// tracked is a controller whose memory can be read and restored.
type tracked struct {
	*Controller
	leases informer.Cache[*coordinationv1.Lease]
}

// trackedState is what the controller remembers.
type trackedState struct {
	LastGrant      time.Time               `json:"lastGrant,omitzero"`
	AvailableSince map[types.UID]time.Time `json:"availableSince,omitempty"`
	LastReport     map[string]time.Time    `json:"lastReport,omitempty"`
}

func (c tracked) state() *trackedState {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &trackedState{AvailableSince: map[types.UID]time.Time{}, LastReport: map[string]time.Time{}}
	if c.config.MinInterval > 0 {
		s.LastGrant = c.lastGrant.UTC()
	}
	if c.config.ControlPlaneSettle > 0 {
		for uid, since := range c.availableSince {
			s.AvailableSince[uid] = since.UTC()
		}
	}
	for name, at := range c.lastReport {
		s.LastReport[name] = at.UTC()
	}
	return s
}

// setState restores a state. A process that has none yet sees everything in its caches for
// the first time.
func (c tracked) setState(s *trackedState) {
	c.mu.Lock()
	c.lastGrant, c.availableSince, c.lastReport = time.Time{}, map[types.UID]time.Time{}, map[string]time.Time{}
	if s != nil {
		c.lastGrant = s.LastGrant
		maps.Copy(c.availableSince, s.AvailableSince)
		maps.Copy(c.lastReport, s.LastReport)
	}
	c.mu.Unlock()
	if s != nil {
		return
	}
	for node := range c.nodes.All() {
		c.trackNode(nil, node)
	}
	for lease := range c.leases.All() {
		c.trackAgent(nil, lease, func() {})
	}
}

// newExploredAgent makes the agent of a node as a process does. It gets the boot ID of its
// host when it begins.
func newExploredAgent(t *testing.T, name string) func(manager.Dependencies) (explore.Instance, error) {
	dir := t.TempDir()
	return func(d manager.Dependencies) (explore.Instance, error) {
		config := rest.CopyConfig(d.Config)
		config.Transport = aside{d.Config.Transport}
		kube, err := kubernetes.NewForConfig(config)
		if err != nil {
			return explore.Instance{}, err
		}
		nodes := informer.NewCache[*corev1.Node](d.Caches, preflight.Resource{
			GroupVersionResource: corev1.SchemeGroupVersion.WithResource("nodes"), Fields: metav1.ObjectNameField + "=" + name,
		}, kube.CoreV1().Nodes(), &corev1.Node{}, 0)
		h := &host{name: name, kube: kube, boots: informer.NewCache[*coordinationv1.Lease](d.Caches, preflight.Resource{
			GroupVersionResource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Namespace: hosts(name),
		}, kube.CoordinationV1().Leases(hosts(name)), &coordinationv1.Lease{}, 0)}
		file, err := os.CreateTemp(dir, "boot-id-")
		if err != nil {
			return explore.Instance{}, err
		}
		h.file = file.Name()
		a, err := agent.New(agent.Config{
			NodeName: name, LeaseNamespace: exploredNamespace, BootIDFile: h.file, LookEvery: 60 * tick,
			Limits: agent.Limits{Drain: 2 * tick, Reboot: 2 * tick, RetryAfter: 3 * tick},
		}, kube, nodes, h, d.Clock)
		if err != nil {
			return explore.Instance{}, err
		}
		return explore.Instance{Loop: a.Loop(), Memory: map[string]explore.Memory{
			"drained": explore.MemoryOf(a.State, a.SetState),
			"bootID":  explore.MemoryOf(h.bootID, h.setBootID),
		}}, file.Close()
	}
}

// host is the host of an agent.
type host struct {
	name  string
	kube  kubernetes.Interface
	boots informer.Cache[*coordinationv1.Lease]
	file  string // with the boot ID
	boot  string // that boot ID
}

func (h *host) bootID() string { return h.boot }

// setBootID restores the boot ID. A process that has none yet has begun in the present boot,
// because every reboot ends it.
func (h *host) setBootID(id string) {
	if id == "" {
		id = *h.boots.Get(hosts(h.name), h.name).Spec.HolderIdentity
	}
	if id != h.boot {
		utilruntime.Must(os.WriteFile(h.file, []byte(id+"\n"), 0o600))
		h.boot = id
	}
}

// Check implements agent.Rebooter.
func (h *host) Check() error { return nil }

// Reboot implements agent.Rebooter.
func (h *host) Reboot(ctx context.Context) error {
	command := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: commands(h.name), Name: h.boot}}
	_, err := h.kube.CoordinationV1().Leases(command.Namespace).Create(ctx, command, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// aside answers what the model of the API server does not know: that Pods can be evicted, and
// that events are written.
type aside struct{ http.RoundTripper }

func (a aside) RoundTrip(request *http.Request) (*http.Response, error) {
	var answer any
	switch path := request.URL.Path; {
	case path == "/api/v1":
		answer = metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "pods/eviction", Kind: "Eviction", Group: policyv1.GroupName, Version: "v1"},
		}}
	case strings.HasPrefix(path, "/apis/events.k8s.io/"):
		answer = eventsv1.Event{}
	default:
		return a.RoundTripper.RoundTrip(request)
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), Request: request,
	}, nil
}

// movesOfWorld are those of the hosts, the kubelets, the node controller and the agents'
// reports.
func movesOfWorld(w explore.World) (moves []explore.Move) {
	for _, n := range explore.All[corev1.Node](w, nodesResource) {
		boot := bootOf(w, n.Name)
		if w.Object(leasesResource, commands(n.Name), boot) != nil {
			after := w.Delete(leasesResource, commands(n.Name), boot, metav1.DeleteOptions{})
			moves = append(moves, explore.Move{Did: "reboots " + n.Name, After: rebooted(after, n.Name, true), Ends: []string{agentOf(n.Name)}})
		}
		if isUp(w, n) {
			continue
		}
		moves = append(moves, explore.Move{Did: "says that " + n.Name + " is up again", After: withStatus(w, n.Name, corev1.ConditionTrue, boot)})
		if request.IsReady(n) {
			moves = append(moves, explore.Move{Did: "says that " + n.Name + " is not heard of", After: withStatus(w, n.Name, corev1.ConditionUnknown, n.Status.NodeInfo.BootID)})
		}
	}
	isOld := false
	after := w
	for _, l := range explore.All[coordinationv1.Lease](w, leasesResource) {
		if l.Namespace == exploredNamespace {
			isOld = isOld || w.Now.Sub(l.Spec.RenewTime.Time) >= 9*tick
			after = explore.Update(after, "agent", leasesResource, l.Namespace, l.Name, "", func(l *coordinationv1.Lease) {
				l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(w.Now))
			})
		}
	}
	if isOld {
		moves = append(moves, explore.Move{Did: "renews the Leases of the agents", After: after})
	}
	return moves
}

// bootOf returns the present boot ID of a host.
func bootOf(w explore.World, name string) string {
	return *explore.Get[coordinationv1.Lease](w, leasesResource, hosts(name), name).Spec.HolderIdentity
}

// isUp reports whether the kubelet of the present boot has said that the node is Ready.
func isUp(w explore.World, n *corev1.Node) bool {
	return n.Status.NodeInfo.BootID == bootOf(w, n.Name) && request.IsReady(n)
}

// wasUnplugged reports whether a host has rebooted without a command.
func wasUnplugged(w explore.World, name string) bool {
	return w.Object(leasesResource, hosts(name), name).GetAnnotations()[unplugged] != ""
}

// reboots returns how many reboots of a host were caused by commands.
func reboots(w explore.World, name string) int {
	return int(*explore.Get[coordinationv1.Lease](w, leasesResource, hosts(name), name).Spec.LeaseTransitions)
}

// rebooted returns the world with another boot of a host.
func rebooted(w explore.World, name string, byCommand bool) explore.World {
	return explore.Update(w, "host", leasesResource, hosts(name), name, "", func(l *coordinationv1.Lease) {
		var n int
		_, err := fmt.Sscanf(*l.Spec.HolderIdentity, bootFormat, &n)
		utilruntime.Must(err)
		l.Spec.HolderIdentity = ptr.To(bootID(n + 1))
		if byCommand {
			*l.Spec.LeaseTransitions++
		}
	})
}

// withStatus returns the world after somebody has reported on a node.
func withStatus(w explore.World, name string, isReady corev1.ConditionStatus, boot string) explore.World {
	return explore.Update(w, "kubelet", nodesResource, "", name, "status", func(n *corev1.Node) {
		n.Status.NodeInfo.BootID = boot
		if c := &n.Status.Conditions[0]; c.Status != isReady {
			c.Status, c.LastTransitionTime = isReady, metav1.NewTime(w.Now)
		}
	})
}

// editsOfPeople are a few changes that people make, or that nobody makes.
func editsOfPeople(w explore.World) (moves []explore.Move) {
	for _, n := range explore.All[corev1.Node](w, nodesResource) {
		edit := func(did string, change func(*corev1.Node)) {
			moves = append(moves, explore.Move{Did: did + " " + n.Name, After: explore.Update(w, "people", nodesResource, "", n.Name, "", change)})
		}
		if request.IsNeeded(n) {
			edit("no longer requests a reboot of", func(n *corev1.Node) {
				delete(n.Annotations, request.Needed)
				n.Annotations[mayStay] = "yes"
			})
		} else {
			edit("requests another reboot of", func(n *corev1.Node) {
				n.Annotations[request.Needed] = "true"
				asked, err := strconv.Atoi(n.Annotations[askedFor])
				utilruntime.Must(err)
				n.Annotations[askedFor] = strconv.Itoa(asked + 1)
			})
		}
		if _, isWorking := n.Annotations[request.InProgress]; !isWorking && !n.Spec.Unschedulable {
			edit("cordons", func(n *corev1.Node) {
				n.Spec.Unschedulable = true
				n.Annotations[keptCordoned] = "yes"
			})
		}
		after := explore.Update(w, "people", leasesResource, hosts(n.Name), n.Name, "", func(l *coordinationv1.Lease) {
			metav1.SetMetaDataAnnotation(&l.ObjectMeta, unplugged, "yes")
		})
		moves = append(moves, explore.Move{Did: "unplugs " + n.Name, After: rebooted(after, n.Name, false), Ends: []string{agentOf(n.Name)}})
	}
	return moves
}

// checkStored looks at each change of what is stored.
func checkStored(c explore.Change) error {
	unavailable := 0
	for _, after := range explore.All[corev1.Node](c.After, nodesResource) {
		if err := checkNode(c, explore.Get[corev1.Node](c.Before, nodesResource, "", after.Name), after); err != nil {
			return fmt.Errorf("node %s: %w", after.Name, err)
		}
		if request.IsGranted(after) || !isUp(c.After, after) && !wasUnplugged(c.After, after.Name) {
			unavailable++
		}
	}
	if unavailable > 1 {
		return fmt.Errorf("%d nodes may reboot, or are not up again", unavailable)
	}
	return nil
}

func checkNode(c explore.Change, before, after *corev1.Node) error {
	if reboots(c.After, after.Name) > reboots(c.Before, after.Name) {
		return checkReboot(c, before)
	}
	if c.Verb == "" || before.ResourceVersion == after.ResourceVersion {
		return nil
	}
	has := func(n *corev1.Node, annotation string) bool { _, ok := n.Annotations[annotation]; return ok }
	begins := func(annotation string) bool { return !has(before, annotation) && has(after, annotation) }
	ends := func(annotation string) bool { return has(before, annotation) && !has(after, annotation) }
	switch {
	case c.By != "late" && c.By != "the controller" && c.By != agentOf(after.Name):
		return errors.New("the agent of another node writes it")
	case begins(request.Next) && !has(before, request.Needed):
		return errors.New("it is chosen without a request")
	case begins(request.Now) && (!has(before, request.Needed) || !has(before, request.Next) || has(before, request.InProgress)):
		return errors.New("it may reboot without having been chosen")
	case begins(request.Now) && (has(after, request.Needed) || has(after, request.Next)):
		return errors.New("it may reboot, and the request is still there")
	case begins(request.InProgress) && (!has(before, request.Now) || has(after, request.Now) || has(after, request.Needed)):
		return errors.New("the work begins without using up the permission")
	case ends(request.Now) && !begins(request.InProgress):
		return errors.New("the permission is lost")
	case ends(request.InProgress) && wasRebooted(c.Before, before) && !isUp(c.Before, before) && !wasUnplugged(c.Before, before.Name):
		return errors.New("the work ends before the node is up again")
	case before.Spec.Unschedulable && !after.Spec.Unschedulable && has(before, keptCordoned):
		return errors.New("a cordon of somebody else is removed")
	}
	want := before.DeepCopy()
	for _, annotation := range []string{request.Needed, request.Next, request.Now, request.Granted, request.InProgress} {
		delete(want.Annotations, annotation)
		if value, ok := after.Annotations[annotation]; ok {
			want.Annotations[annotation] = value
		}
	}
	if c.By != "the controller" {
		want.Spec.Unschedulable = after.Spec.Unschedulable
	}
	want.ResourceVersion, want.ManagedFields = after.ResourceVersion, after.ManagedFields
	if !equality.Semantic.DeepEqual(want, after) {
		return fmt.Errorf("more is changed than what belongs to %s: %s", c.By, cmp.Diff(before, after))
	}
	return nil
}

// wasRebooted reports whether a node has rebooted since the agent began its work.
func wasRebooted(w explore.World, n *corev1.Node) bool {
	record, err := agent.RecordOf(n)
	return err == nil && record != nil && record.BootID != bootOf(w, n.Name)
}

// checkReboot looks at a node at the moment of a reboot by a command.
func checkReboot(c explore.Change, node *corev1.Node) error {
	record, err := agent.RecordOf(node)
	if err != nil {
		return err
	}
	asked, err := strconv.Atoi(node.Annotations[askedFor])
	if err != nil {
		return err
	}
	switch {
	case record == nil || record.BootID != bootOf(c.Before, node.Name):
		return errors.New("it reboots without a permission")
	case !node.Spec.Unschedulable:
		return errors.New("it reboots without having been cordoned")
	case len(explore.All[corev1.Pod](c.Before, podsResource)) > 0:
		return errors.New("it reboots without having been drained")
	case reboots(c.Before, node.Name) >= asked:
		return fmt.Errorf("it reboots again, though only %d reboots were requested", asked)
	}
	return nil
}

// checkRest looks at a state in which nothing happens any more.
func checkRest(w explore.World) error {
	var isCordoned []string
	for _, n := range explore.All[corev1.Node](w, nodesResource) {
		if n.Annotations[keptCordoned] != "" {
			isCordoned = append(isCordoned, n.Name)
		}
	}
	for _, n := range explore.All[corev1.Node](w, nodesResource) {
		// Another node that people have cordoned uses up the budget.
		canReboot := len(isCordoned) == 0 || slices.Equal(isCordoned, []string{n.Name})
		switch isKept := n.Annotations[keptCordoned] != ""; {
		case request.IsNeeded(n) && canReboot:
			return fmt.Errorf("node %s waits for its reboot", n.Name)
		case request.IsGranted(n) || request.IsNext(n):
			return fmt.Errorf("node %s has not finished its reboot", n.Name)
		case n.Spec.Unschedulable != isKept:
			return fmt.Errorf("node %s: unschedulable is %t, want %t", n.Name, n.Spec.Unschedulable, isKept)
		case !request.IsNeeded(n) && n.Annotations[mayStay] == "" && bootOf(w, n.Name) == bootID(1):
			return fmt.Errorf("node %s was not rebooted", n.Name)
		}
	}
	return nil
}

// occupied is the controller with one agent, on whose node a Pod runs that the agent does not
// evict. Somebody deletes the Pod once the reboot was given up.
func occupied(t *testing.T) explore.Setup {
	s := explored(t, "a")
	s.Objects = append(s.Objects, explore.Object{Manager: "people", Object: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "alone"},
		Spec:       corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{Name: "main", Image: "registry.example/vanilla:1"}}},
	}})
	s.World = append(s.World, explore.Actor{Name: "somebody", Moves: func(w explore.World) []explore.Move {
		requested, err := request.NotBefore(explore.Get[corev1.Node](w, nodesResource, "", "a"))
		if err != nil || requested.IsZero() || w.Object(podsResource, metav1.NamespaceDefault, "alone") == nil {
			return nil
		}
		return []explore.Move{{
			Did:   "deletes the Pod",
			After: w.Delete(podsResource, metav1.NamespaceDefault, "alone", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}),
		}}
	}})
	return s
}

var exploring = explore.AddFlags(flag.CommandLine)

// TestExplore is complete within these bounds. -explore.bounds goes further.
func TestExplore(t *testing.T) {
	exploring.Test(t, `explored(t, "a")`, explored(t, "a"), "losses=1", "refusals=1", "crashes=1")
}

// Two agents and two processes of the controller have so many states that nothing goes wrong
// here.
func TestExploreTwoAgents(t *testing.T) {
	exploring.Test(t, `explored(t, "a", "b")`, explored(t, "a", "b"), "processes=2")
}

// Two processes of the controller may believe that they lead.
func TestExploreTwoControllers(t *testing.T) {
	exploring.Test(t, `unattended("a", "b")`, unattended("a", "b"), "processes=2,takeovers=1")
}

// An agent may take long to begin, while its node still looks as if nothing had happened.
func TestExploreSlowAgents(t *testing.T) {
	exploring.Test(t, `unattended("a", "b")`, unattended("a", "b"), "delays=2")
}

// A reboot that is given up is requested again.
func TestExploreOccupiedNode(t *testing.T) {
	exploring.Test(t, "occupied(t)", occupied(t), "processes=1")
}
