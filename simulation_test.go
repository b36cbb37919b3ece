//go:debug randseednop=0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/simulation"
)

// icecreams is the world of the Icecream controller: what people, policies, webhooks and quotas do. What must be true
// is in oracles_test.go.
type icecreams struct {
	simulation.Workloads

	// What is done to writes from now on.
	undoing   bool   // Somebody undoes each write of a Deployment's replicas.
	rewriting bool   // A webhook gives each Deployment an image of another registry.
	pinning   int    // A webhook adds the digest that a tag has now, which counts from 1; 0 if there is none.
	most      int32  // of replicas, as a policy has it; 0 if there is none
	deadline  int32  // the progressDeadlineSeconds that a webhook sets; 0 if there is none
	refusing  int    // the code with which a quota refuses each new Deployment; 0 if there is none
	denying   int32  // the code with which a webhook denies one image; 0 if there is none
	failing   string // why each write of a Deployment fails: what the API server says; empty if it does not

	// What was done.
	isDoomed   bool // The namespace is deleted at some time.
	isOpposed  bool // Somebody has undone or refused writes.
	hasAltered bool // A webhook or policy has changed what was asked for.
	hasLowered bool // That was the number of replicas.
	pushed     int  // how often somebody has pushed the tags
	launched   int  // Icecreams so far
	edits      int
	meddled    int                  // how often somebody has changed or deleted a Deployment
	fought     map[string]time.Time // when somebody last changed the replicas of a Deployment, or refused to, by its name
	crashed    map[string]time.Time // when a Pod of a Deployment last crashed or failed, by its name

	witness
}

// newWorld returns the world of the Icecream controller.
func newWorld(h *simulation.History) simulation.World {
	w := &icecreams{
		Workloads: simulation.NewWorkloads(h), witness: newWitness(), fought: map[string]time.Time{}, crashed: map[string]time.Time{},
	}
	draw := h.Draw("conditions")
	w.isDoomed = draw.IntN(8) == 0
	if draw.IntN(2) == 0 {
		w.deadline = 20 + draw.Int32N(100)
	}
	return w
}

var (
	icecreamNames   = []string{"sundae", "cone", "gelato"}
	deploymentNames = []string{"", "", "sundae", "cone", "float"}
	images          = []string{"registry.example/vanilla:1", "registry.example/mint:2", "registry.example/mint:3", "registry.example/missing:1", "registry.example/unready:1", "registry.example/crashing:1", "registry.example/unstartable:1", "registry.example/vanilla:1@sha256:0"}
)

// denied is the image that a policy refuses at times.
const denied = "registry.example/mint:3"

// forever is longer than a history.
const forever = 24 * time.Hour

// hold is a finalizer that keeps a Deployment from being gone.
const hold = "example.com/hold"

func iceKey(name string) apiserver.Key {
	return simulation.KeyOf(v1alpha1.GroupName, "icecreams", name)
}

func deploymentKey(name string) apiserver.Key { return simulation.KeyOf("apps", "deployments", name) }

// icecreamKind is what the model knows of Icecreams.
var icecreamKind = apiserver.CustomResource(v1alpha1.Resource("icecreams").WithVersion(v1alpha1.GroupVersion.Version), "Icecream", "deploymentName")

// TestSimulation runs the program with this controller in simulated worlds. See package simulation.
func TestSimulation(t *testing.T) {
	simulation.Simulation{
		Run:      func(ctx context.Context, args []string) error { return newProgram().Run(ctx, args) },
		Args:     []string{"-workers=2"},
		Kinds:    []apiserver.Kind{icecreamKind, apiserver.Deployments(), apiserver.ReplicaSets(), apiserver.Pods(), apiserver.Namespaces(), apiserver.Leases(), apiserver.EventObjects()},
		NewWorld: newWorld,
	}.Test(t)
}

// Begin implements World.
func (w *icecreams) Begin() {
	draw := w.Draw("begin")
	w.newNamespace(metav1.NamespaceSystem)
	w.newNamespace(simulation.Namespace)
	for _, name := range icecreamNames[:1+draw.IntN(2)] {
		w.newIcecream(draw, name)
	}
	if draw.IntN(10) == 0 {
		w.newForeign(simulation.Pick(draw, icecreamNames))
	}
	if draw.IntN(2) == 0 { // One of the same name is nobody's business here.
		w.newNamespace(elsewhere)
		w.Put(&v1alpha1.Icecream{
			ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "sundae", Generation: 1},
			Spec:       v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](2), Image: images[0]},
			Status:     v1alpha1.IcecreamStatus{ObservedGeneration: -1},
		})
	}
}

func (w *icecreams) newNamespace(name string) {
	w.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// newIcecream creates an Icecream, unless its namespace is gone or being deleted.
func (w *icecreams) newIcecream(draw *rand.Rand, name string) {
	if !w.IsOpen() {
		return
	}
	image := images[0]
	if draw.IntN(3) == 0 {
		image = simulation.Pick(draw, images)
	}
	w.put(name, v1alpha1.IcecreamSpec{DeploymentName: simulation.Pick(draw, deploymentNames), Replicas: ptr.To(draw.Int32N(4)), Image: image})
}

func (w *icecreams) put(name string, spec v1alpha1.IcecreamSpec) {
	w.launched++
	w.Put(&v1alpha1.Icecream{
		ObjectMeta: metav1.ObjectMeta{Namespace: simulation.Namespace, Name: name, Generation: 1},
		Spec:       spec, Status: v1alpha1.IcecreamStatus{ObservedGeneration: -1},
	})
}

// newForeign creates somebody else's Deployment, unless there is one of the name.
func (w *icecreams) newForeign(name string) {
	labels := map[string]string{"app": "foreign"}
	w.Create(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: simulation.Namespace, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "foreign", Image: images[0]}}},
			},
		},
	})
}

func (w *icecreams) ices() []*v1alpha1.Icecream { return icesIn(w, w.Store) }

// icesIn, deploymentsIn and podsIn return the objects of the namespace.
func icesIn(w *icecreams, store apiserver.Store) []*v1alpha1.Icecream {
	return slices.DeleteFunc(simulation.All[v1alpha1.Icecream](w.History, store), isElsewhere)
}

func deploymentsIn(w *icecreams, store apiserver.Store) []*appsv1.Deployment {
	return slices.DeleteFunc(simulation.All[appsv1.Deployment](w.History, store), isElsewhere)
}

func podsIn(w *icecreams, store apiserver.Store) []*corev1.Pod {
	return slices.DeleteFunc(simulation.All[corev1.Pod](w.History, store), isElsewhere)
}

func isElsewhere[T metav1.Object](obj T) bool { return obj.GetNamespace() != simulation.Namespace }

// deploymentOf returns the Deployment of the name that an Icecream asks for; nil if there is none.
func (w *icecreams) deploymentOf(store apiserver.Store, ice *v1alpha1.Icecream) *appsv1.Deployment {
	return simulation.Get[appsv1.Deployment](w.History, store, deploymentKey(icecream.DeploymentName(ice)))
}

// Edit implements World.
func (w *icecreams) Edit(draw *rand.Rand) string {
	w.checkBudget()
	w.watch()
	w.edits++
	scale, image, template := w.edit("replicas"), w.edit("image"), w.edit("template")
	kinds := []func(*rand.Rand) string{
		scale, scale, image, image, template, template, w.edit("memory"), w.edit("image", "replicas"), w.edit("denied image", "replicas"),
		w.create, w.deleteIcecream, w.deleteIcecream, w.foreign, w.editDeployment, w.editDeployment, w.copyDeployment, w.copyDeployment,
		w.disturbPod, w.disturbPod, w.disturbPod, w.shortage, w.policy, w.policy, w.policy, w.policy, w.policy,
	}
	if w.refusing != 0 && draw.IntN(3) == 0 {
		return w.deleteIcecream(draw)
	}
	if w.isDoomed && (!w.IsOpen() || draw.IntN(6) == 0) {
		return w.namespace(draw)
	}
	return simulation.Pick(draw, kinds)(draw)
}

// namespace deletes the namespace, or creates it again.
func (w *icecreams) namespace(draw *rand.Rand) string {
	switch {
	case w.IsOpen():
		w.isOpposed = true
		w.edits += len(w.ices()) // They lose one object after the other.
		w.Delete(simulation.NamespaceKey, metav1.DeletePropagationBackground)
		return "the namespace is deleted"
	case w.Store.Objects[simulation.NamespaceKey] != nil:
		return w.edit("replicas")(draw)
	default:
		w.newNamespace(simulation.Namespace)
		w.newIcecream(draw, simulation.Pick(draw, icecreamNames))
		return "the namespace is created again, with an Icecream"
	}
}

// shortage is what Pods lack from now on, for a while or for good.
func (w *icecreams) shortage(draw *rand.Rand) string {
	long := time.Duration(1+draw.IntN(80)) * time.Second
	if draw.IntN(3) == 0 {
		w.RejectUntil = time.Now().Add(long / 2)
		w.edits += 2 * len(w.ices()) // Their Pods come and go all the time.
		return fmt.Sprintf("nodes reject each Pod for %s", long/2)
	}
	if draw.IntN(4) == 0 {
		long = forever
	}
	if draw.IntN(2) == 0 {
		w.QuotaUntil = time.Now().Add(long)
		return fmt.Sprintf("a quota refuses new Pods for %s", long)
	}
	w.FullUntil = time.Now().Add(long)
	return fmt.Sprintf("no node has room for another Pod for %s", long)
}

// edit changes these parts of the spec of an Icecream at once.
func (w *icecreams) edit(parts ...string) func(*rand.Rand) string {
	return func(draw *rand.Rand) string {
		ice := simulation.Pick(draw, w.ices())
		if ice == nil {
			return ""
		}
		changed := ice.DeepCopy()
		changed.Generation++
		spec, what := &changed.Spec, ""
		for _, part := range parts {
			switch part {
			case "replicas":
				spec.Replicas = ptr.To(draw.Int32N(5))
				what += fmt.Sprintf(" %d replicas", *spec.Replicas)
			case "image":
				spec.Image = simulation.Pick(draw, images)
				what += " " + spec.Image
			case "denied image":
				spec.Image = denied
				what += " " + spec.Image
			case "template":
				template := simulation.Pick(draw, templates)
				spec.Template = &runtime.RawExtension{Raw: []byte(template)}
				what += " " + template
			case "memory": // in other words, or another one
				memory := simulation.Pick(draw, []string{"1Gi", "1073741824", "1024Mi", "2Gi", "1.073741824e9", "1e9", "1e99"})
				spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
				what += " memory " + memory
			}
		}
		w.Put(changed)
		return fmt.Sprintf("Icecream %s:%s", ice.Name, what)
	}
}

// templates are what else Pods need. The last one is none.
var templates = []string{
	`{"spec":{"containers":[{"name":"icecream","env":[{"name":"A","value":"1"}]}]}}`,
	`{"spec":{"containers":[{"name":"icecream","env":[{"name":"A","value":"2"},{"name":"B","value":"2"}]}]}}`,
	`{"metadata":{"annotations":{"mesh":"on"}},"spec":{"tolerations":[{"key":"cold"}]}}`,
	`{"spec":{"containers":[{"name":"mixer","image":"mixer","resources":{"limits":{"cpu":1e3,"memory":"1e9"}}}]}}`,
	`{}`,
	`{"spec":{"containers":[{"name":"icecream","evn":[]}]}}`,
}

func (w *icecreams) create(draw *rand.Rand) string {
	name := simulation.Pick(draw, icecreamNames)
	if w.Store.Objects[iceKey(name)] != nil {
		return w.edit("replicas")(draw)
	}
	w.newIcecream(draw, name)
	return "a new Icecream " + name
}

// deleteIcecream deletes an Icecream, preferably one without a Deployment, for whose name others can wait. It can be
// created again at once, also as it was, as kubectl replace --force does: with the same name and the same generation as
// one that was never edited.
func (w *icecreams) deleteIcecream(draw *rand.Rand) string {
	ice, policy := simulation.Pick(draw, w.ices()), metav1.DeletePropagationBackground
	if ice == nil {
		return ""
	}
	if draw.IntN(2) == 0 {
		policy = simulation.Pick(draw, []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan})
	}
	for _, waiting := range w.ices() {
		if w.deploymentOf(w.Store, waiting) == nil && w.oldest(w.Store, icecream.DeploymentName(waiting)) == waiting {
			ice, policy = waiting, metav1.DeletePropagationBackground
		}
	}
	w.Delete(iceKey(ice.Name), policy)
	what := fmt.Sprintf("Icecream %s is deleted (%s)", ice.Name, policy)
	if w.Store.Objects[iceKey(ice.Name)] != nil || !w.IsOpen() {
		return what
	}
	switch draw.IntN(4) {
	case 0:
		w.newIcecream(draw, ice.Name)
		return what + ", and created again"
	case 1:
		return what
	default:
		w.put(ice.Name, ice.Spec)
		return what + ", and created again as it was"
	}
}

func (w *icecreams) foreign(draw *rand.Rand) string {
	name := simulation.Pick(draw, []string{"sundae", "cone", "float"})
	stored := simulation.Get[appsv1.Deployment](w.History, w.Store, deploymentKey(name))
	w.meddled++
	w.Delete(deploymentKey(name), metav1.DeletePropagationBackground)
	if stored != nil && stored.Labels["app"] == "foreign" {
		return "somebody else's Deployment " + name + " is deleted"
	}
	w.newForeign(name)
	return "somebody else's Deployment " + name
}

// elsewhere is a namespace in which there are no Icecreams.
const elsewhere = "elsewhere"

// copyDeployment copies an Icecream's Deployment under another name or to another namespace, with all of its labels, and
// with or without its owner, and a Pod. There, a finalizer keeps it from the garbage collector. The copies count nowhere.
func (w *icecreams) copyDeployment(draw *rand.Rand) string {
	d := simulation.Pick(draw, deploymentsIn(w, w.Store))
	if d == nil {
		return ""
	}
	copied := d.DeepCopy()
	copied.Status = appsv1.DeploymentStatus{}
	copied.ObjectMeta = metav1.ObjectMeta{Namespace: d.Namespace, Name: "clone", Labels: d.Labels}
	if draw.IntN(2) == 0 {
		copied.OwnerReferences = d.OwnerReferences
	}
	if draw.IntN(2) == 0 {
		w.newNamespace(elsewhere)
		copied.Namespace, copied.Finalizers = elsewhere, []string{hold}
		copied.Name = simulation.Pick(draw, []string{d.Name, "claim"})
		if pod := simulation.Pick(draw, podsIn(w, w.Store)); pod != nil && len(pod.OwnerReferences) > 0 {
			pod = pod.DeepCopy()
			pod.ObjectMeta = metav1.ObjectMeta{Namespace: elsewhere, Name: pod.Name + "-claim", Labels: pod.Labels, OwnerReferences: pod.OwnerReferences}
			pod.OwnerReferences[0].UID, pod.Spec.NodeName = "claim", elsewhere
			w.Put(pod)
		}
	}
	w.Create(copied)
	return fmt.Sprintf("Deployment %s is copied to %s in %s", d.Name, copied.Name, copied.Namespace)
}

func (w *icecreams) editDeployment(draw *rand.Rand) string {
	d := simulation.Pick(draw, deploymentsIn(w, w.Store))
	if d == nil {
		return ""
	}
	return w.editThis(draw, d)
}

func (w *icecreams) editThis(draw *rand.Rand, d *appsv1.Deployment) string {
	w.meddled++
	changed := d.DeepCopy()
	template := &changed.Spec.Template
	first := &template.Spec.Containers[0]
	what := simulation.Pick(draw, []string{
		"replicas", "another image", "no owner", "deleted", "a sidecar", "a label less", "restarted", "deleted, but held", "maybe root, with other variables",
		"paused or resumed", "a huge limit",
	})
	switch what {
	case "replicas":
		changed.Spec.Replicas = ptr.To(draw.Int32N(5))
		w.fought[d.Name] = time.Now()
	case "another image":
		first.Image = "registry.example/other:1"
	case "no owner":
		changed.OwnerReferences = nil
	case "deleted":
		w.Delete(deploymentKey(d.Name), simulation.Pick(draw, []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}))
		return fmt.Sprintf("Deployment %s: %s", d.Name, what)
	case "a sidecar":
		if slices.ContainsFunc(template.Spec.Containers, func(c corev1.Container) bool { return c.Name == "sidecar" }) {
			return ""
		}
		template.Spec.Containers = append(template.Spec.Containers, corev1.Container{Name: "sidecar", Image: images[0]})
	case "a label less":
		delete(changed.Labels, "app.kubernetes.io/name")
	case "restarted":
		metav1.SetMetaDataAnnotation(&template.ObjectMeta, "kubectl.kubernetes.io/restartedAt", time.Now().String())
	case "deleted, but held":
		changed.Finalizers = append(changed.Finalizers, hold)
	case "maybe root, with other variables":
		if template.Spec.SecurityContext != nil {
			template.Spec.SecurityContext.RunAsNonRoot = nil
		}
		first.Env = []corev1.EnvVar{{Name: "A", Value: "theirs"}, {Name: "THEIRS", Value: "1"}}
	case "paused or resumed":
		changed.Spec.Paused = !d.Spec.Paused
	case "a huge limit": // which must cost nothing
		first.Resources.Limits = maps.Clone(first.Resources.Limits)
		if first.Resources.Limits == nil {
			first.Resources.Limits = corev1.ResourceList{}
		}
		first.Resources.Limits[scoops] = resource.MustParse("1e300000")
	}
	w.putDeployment(d, changed)
	if what == "deleted, but held" {
		w.Delete(deploymentKey(d.Name), metav1.DeletePropagationBackground)
	}
	return fmt.Sprintf("Deployment %s: %s", d.Name, what)
}

// scoops is a resource that somebody else limits.
const scoops = "example.com/scoops"

// putDeployment stores what somebody else has made of a Deployment.
func (w *icecreams) putDeployment(before, after *appsv1.Deployment) {
	if !equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		after.Generation++
	}
	w.Put(after)
}

// disturbPod has a Pod crash or be evicted, or not end: with the strategy Recreate, that holds up a rollout.
func (w *icecreams) disturbPod(draw *rand.Rand) string {
	pod := simulation.Pick(draw, podsIn(w, w.Store))
	if pod == nil || pod.Spec.NodeName == "" {
		return ""
	}
	changed, key := pod.DeepCopy(), simulation.KeyOf("", "pods", pod.Name)
	switch draw.IntN(3) {
	case 0:
		simulation.Crash(changed)
		w.Put(changed)
		w.crashed[nameOfDeployment(pod)] = time.Now()
		return fmt.Sprintf("Pod %s crashes", pod.Name)
	case 1:
		w.Delete(key, metav1.DeletePropagationBackground)
		return fmt.Sprintf("Pod %s is evicted", pod.Name)
	}
	changed.Finalizers = append(changed.Finalizers, hold)
	w.Put(changed)
	if d := simulation.Get[appsv1.Deployment](w.History, w.Store, deploymentKey(nameOfDeployment(pod))); d != nil && draw.IntN(2) == 0 {
		changed := d.DeepCopy()
		changed.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		w.putDeployment(d, changed)
		return fmt.Sprintf("Pod %s will not end, and Deployment %s waits for that; %s", pod.Name, d.Name, w.edit("image")(draw))
	}
	w.Delete(key, metav1.DeletePropagationBackground)
	return fmt.Sprintf("Pod %s is deleted, and does not end", pod.Name)
}

const (
	cannotEvaluate = "policy 'flavors' with binding 'flavors' denied request: expression resulted in error: no such key: team"
	cannotCall     = `failed calling webhook "flavors.example.com": connection refused`
)

// policy is what policies, webhooks, quotas and other people do to each write from now on.
func (w *icecreams) policy(draw *rand.Rand) string {
	what := simulation.Pick(draw, []string{"undo", "rewrite", "pin", "lower", "refuse", "refuse", "deny", "deny", "deny", "fail", "fail"})
	switch what {
	case "rewrite", "pin", "lower":
		w.hasAltered = true
	default:
		w.isOpposed = true
	}
	switch what {
	case "undo":
		w.undoing = !w.undoing
		return fmt.Sprintf("somebody undoes each write: %t", w.undoing)
	case "rewrite":
		w.rewriting, w.pinning = !w.rewriting, 0
		return fmt.Sprintf("a webhook rewrites images: %t", w.rewriting)
	case "pin":
		w.pushed++
		w.rewriting, w.pinning = false, w.pushed
		return fmt.Sprintf("a webhook gives each tag its digest, which is number %d now", w.pinning)
	case "lower":
		w.most = draw.Int32N(3)
		return fmt.Sprintf("a policy allows %d replicas at most; 0 is any number", w.most)
	case "refuse":
		w.refusing = simulation.Pick(draw, []int{http.StatusForbidden, http.StatusConflict})
		return fmt.Sprintf("a quota refuses new Deployments with %d%s", w.refusing, w.deleteDeployment(draw))
	case "deny": // and somebody asks for that, and for other replicas
		w.denying = simulation.Pick(draw, []int32{0, 401, 404, 409, 429, 429, 500, 503})
		return fmt.Sprintf("a webhook denies %s with %d; 0 is not any more; %s", denied, w.denying, w.edit("denied image", "replicas")(draw))
	default:
		clear(w.failed)
		w.failing = simulation.Pick(draw, []string{"", cannotEvaluate, cannotCall})
		return fmt.Sprintf("each write of a Deployment fails: %q%s", w.failing, w.deleteDeployment(draw))
	}
}

// deleteDeployment deletes a Deployment, and says so.
func (w *icecreams) deleteDeployment(draw *rand.Rand) string {
	d := simulation.Pick(draw, deploymentsIn(w, w.Store))
	if d == nil {
		return ""
	}
	w.edits++ // It may have to be created again.
	w.meddled++
	w.Delete(deploymentKey(d.Name), metav1.DeletePropagationBackground)
	return fmt.Sprintf("; Deployment %s is deleted", d.Name)
}

// Settle implements World. The controller waits longer after each write that somebody undoes, and what never gets ready is
// given the time until its deadline. Some Pods never end.
func (w *icecreams) Settle() time.Duration {
	w.undoing, w.rewriting, w.pinning, w.most, w.refusing, w.denying, w.failing = false, false, 0, 0, 0, 0, ""
	w.RejectUntil = time.Now()
	clear(w.failed)
	release := func(key apiserver.Key, obj interface {
		runtime.Object
		metav1.Object
	},
	) {
		if key.Namespace = obj.GetNamespace(); slices.Contains(obj.GetFinalizers(), hold) {
			obj.SetFinalizers(slices.DeleteFunc(obj.GetFinalizers(), func(f string) bool { return f == hold }))
			w.Put(obj)
			w.Delete(key, metav1.DeletePropagationBackground)
		}
	}
	for _, d := range simulation.All[appsv1.Deployment](w.History, w.Store) {
		release(deploymentKey(d.Name), d.DeepCopy())
	}
	if !w.IsOpen() || w.Draw("hold").IntN(2) == 0 {
		for _, pod := range simulation.All[corev1.Pod](w.History, w.Store) {
			release(simulation.KeyOf("", "pods", pod.Name), pod.DeepCopy())
		}
	}
	settle := 3 * time.Minute
	for _, ice := range w.ices() {
		wait := 600 * time.Second
		if d := own(w.deploymentOf(w.Store, ice), ice); d != nil && d.DeletionTimestamp == nil {
			wait = time.Duration(ptr.Deref(d.Spec.ProgressDeadlineSeconds, 600)) * time.Second
		}
		settle = max(settle, 2*time.Minute+wait)
	}
	if w.isOpposed { // What was refused or undone may have to wait, and is not Stalled before.
		settle += 12 * time.Minute
	}
	return settle
}

// Interfere implements World.
func (w *icecreams) Interfere(draw *rand.Rand, _ string, key apiserver.Key) string {
	if key.Resource.Resource == "events" || key.Resource.Resource == "leases" {
		return ""
	}
	if d := simulation.Get[appsv1.Deployment](w.History, w.Store, key); d != nil && draw.IntN(3) > 0 {
		if draw.IntN(4) == 0 {
			w.Delete(deploymentKey(d.Name), metav1.DeletePropagationBackground)
			w.newForeign(d.Name)
			return fmt.Sprintf("somebody else's Deployment takes the place of %s", d.Name)
		}
		return w.editThis(draw, d)
	}
	if key.Resource.Resource == "deployments" && w.Store.Objects[key] == nil && key.Name != "" && draw.IntN(2) == 0 {
		w.newForeign(key.Name)
		return fmt.Sprintf("somebody else's Deployment %s", key.Name)
	}
	return simulation.Pick(draw, []func(*rand.Rand) string{w.edit("replicas"), w.deleteIcecream, w.edit("image"), w.editDeployment})(draw)
}

// Admit implements World.
func (w *icecreams) Admit(a apiserver.Admission) error {
	d, ok := a.Object.(*appsv1.Deployment)
	if !ok {
		return nil
	}
	isNew, owner := a.Verb == "create", ptr.Deref(metav1.GetControllerOfNoCopy(d), metav1.OwnerReference{})
	if isNew {
		w.attempted[owner.UID] = true
	}
	if ice := w.Store.Objects[iceKey(owner.Name)]; w.failing != "" && ice != nil {
		w.failed[owner.UID], w.fought[a.Key.Name] = ice.GetGeneration(), time.Now()
	}
	old, _ := a.Old.(*appsv1.Deployment)
	details := &metav1.StatusDetails{Group: a.Key.Resource.Group, Kind: a.Key.Resource.Resource, Name: a.Key.Name}
	status := metav1.Status{Status: metav1.StatusFailure, Details: details}
	switch {
	case w.failing == cannotCall:
		return apierrors.NewInternalError(errors.New(w.failing))
	case w.failing != "":
		status.Code, status.Reason, status.Message = http.StatusForbidden, metav1.StatusReasonInvalid, w.failing
		details.Causes = []metav1.StatusCause{{Message: w.failing}}
		return &apierrors.StatusError{ErrStatus: status}
	case w.denying > 0 && hasImage(d, denied) && (isNew || !hasImage(old, denied)):
		status.Code, status.Message = w.denying, `admission webhook "flavors.example.com" denied the request: no mint today`
		return &apierrors.StatusError{ErrStatus: status}
	case isNew && w.refusing == http.StatusConflict:
		return apierrors.NewConflict(a.Key.Resource, a.Key.Name, errors.New("Operation cannot be fulfilled on resourcequotas: the object has been modified"))
	case isNew && w.refusing == http.StatusForbidden:
		return apierrors.NewForbidden(a.Key.Resource, a.Key.Name, errors.New("exceeded quota"))
	}
	return nil
}

func hasImage(d *appsv1.Deployment, image string) bool {
	return slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return plain(c.Image) == plain(image) })
}

// plain returns the image that somebody asked for, before a webhook changed it.
func plain(image string) string {
	image, _, _ = strings.Cut(image, "@")
	return strings.Replace(image, "mirror.example", "registry.example", 1)
}

// Mutate implements World.
func (w *icecreams) Mutate(a apiserver.Admission) {
	d, ok := a.Object.(*appsv1.Deployment)
	if !ok {
		return
	}
	if a.Verb == "create" && w.deadline > 0 {
		d.Spec.ProgressDeadlineSeconds = &w.deadline
	}
	image := &d.Spec.Template.Spec.Containers[0].Image
	if *image == "" { // a patch of ours that meets a Deployment of somebody else, and is refused later
		return
	}
	if w.rewriting && !strings.HasPrefix(*image, "mirror") {
		*image = "mirror.example" + (*image)[strings.Index(*image, "/"):]
	}
	if w.pinning > 0 && !strings.Contains(*image, "@") {
		*image = fmt.Sprintf("%s@sha256:%d", *image, w.pinning)
	}
	if w.most > 0 && ptr.Deref(d.Spec.Replicas, 1) > w.most {
		d.Spec.Replicas, w.hasLowered = ptr.To(w.most), true
	}
}

// Act implements World.
func (w *icecreams) Act() time.Time {
	w.watch()
	if w.undoing {
		for _, d := range deploymentsIn(w, w.Store) {
			if d.DeletionTimestamp == nil && ptr.Deref(d.Spec.Replicas, 1) != 1 {
				changed := d.DeepCopy()
				changed.Spec.Replicas = ptr.To[int32](1)
				w.fought[d.Name] = time.Now()
				w.putDeployment(d, changed)
			}
		}
	}
	next := w.Workloads.Act()
	for _, pod := range podsIn(w, w.Store) {
		if pod.Status.Phase == corev1.PodFailed || strings.Contains(pod.Spec.Containers[0].Image, "crashing") {
			w.crashed[nameOfDeployment(pod)] = time.Now()
		}
	}
	return next
}

// nameOfDeployment returns the name of a Pod's Deployment.
func nameOfDeployment(pod *corev1.Pod) string {
	name, _, _ := strings.Cut(pod.Name, "-")
	return name
}
