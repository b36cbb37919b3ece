//go:debug randseednop=0

package main

import (
	"context"
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/simulation"
)

// icecreams is the world of the Icecream controller.
type icecreams struct {
	simulation.Workloads

	undoing    bool  // Somebody undoes each write of a Deployment's replicas.
	isOpposed  bool  // Somebody has undone or refused writes.
	hasAltered bool  // A webhook or policy has changed what was asked for.
	rewriting  bool  // A webhook gives each Deployment an image of another registry.
	pinning    int   // A webhook adds the digest that a tag has now, which counts from 1; 0 if there is none.
	pushed     int   // how often somebody has pushed the tags
	most       int32 // of replicas, as a policy has it; 0 if there is none
	hasLowered bool  // That policy has ever changed something.
	refusing   int   // the code with which a policy refuses each new Deployment; 0 if there is none
	deadline   int32 // the progressDeadlineSeconds that a webhook sets; 0 if there is none
	isDoomed   bool  // The namespace is deleted at some time.
	denying    int32 // A webhook refuses one image with this code, in Deployments that there are; 0 is none.
	writes     map[string]int
	launched   int // Icecreams so far
	edits      int
	meddled    int                     // how often somebody has changed or deleted a Deployment
	refused    map[string][]time.Time  // when creates were refused, by process, name and what was asked for
	reported   map[types.UID]report    // the last status that was written for an Icecream
	made       map[types.UID]made      // the last template that was written for a Deployment
	attempted  map[types.UID]bool      // Icecreams for which a create was sent
	late       map[string]time.Time    // since when something has not been as it should be; see [icecreams.watch]
	started    time.Time               // when the first request was made
	fought     map[string]time.Time    // when somebody last changed the replicas of a Deployment, by its name
	edited     map[types.UID]time.Time // when the spec of an Icecream last changed
	crashed    map[string]time.Time    // when a Pod of a Deployment last crashed or failed, by its name
}

// report is a status that a process has written.
type report struct {
	process string
	at      time.Time
	status  v1alpha1.IcecreamStatus
}

// made is the template that a process has written for the same spec.
type made struct {
	process               string
	spec                  v1alpha1.IcecreamSpec
	template              corev1.PodTemplateSpec
	isRewritten, isPinned bool // by a webhook that was there
}

// newWorld returns the world of the Icecream controller.
func newWorld(h *simulation.History) simulation.World {
	w := &icecreams{
		Workloads: simulation.NewWorkloads(h), writes: map[string]int{}, refused: map[string][]time.Time{},
		attempted: map[types.UID]bool{}, late: map[string]time.Time{}, fought: map[string]time.Time{},
		edited: map[types.UID]time.Time{}, crashed: map[string]time.Time{}, reported: map[types.UID]report{}, made: map[types.UID]made{},
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
	w.edited[w.Store.Objects[iceKey(name)].GetUID()] = time.Now()
}

// replace deletes an Icecream and creates it again at once, as kubectl replace --force does. The
// next one has the same name and the same generation as one that was never edited.
func (w *icecreams) replace(draw *rand.Rand) string {
	ice := simulation.Pick(draw, w.ices())
	for _, waiting := range w.ices() { // Preferably one whose Deployment is refused.
		if w.Store.Objects[deploymentKey(icecream.DeploymentName(waiting))] == nil {
			ice = waiting
		}
	}
	if ice == nil || !w.IsOpen() {
		return ""
	}
	w.Delete(iceKey(ice.Name), metav1.DeletePropagationBackground)
	if w.Store.Objects[iceKey(ice.Name)] != nil {
		return fmt.Sprintf("Icecream %s is deleted", ice.Name)
	}
	w.put(ice.Name, ice.Spec)
	return fmt.Sprintf("Icecream %s is replaced", ice.Name)
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

func (w *icecreams) ices() []*v1alpha1.Icecream { return w.icesIn(w.Store) }

// icesIn returns the Icecreams of the namespace.
func (w *icecreams) icesIn(store apiserver.Store) []*v1alpha1.Icecream {
	return slices.DeleteFunc(simulation.All[v1alpha1.Icecream](w.History, store), func(ice *v1alpha1.Icecream) bool { return ice.Namespace != simulation.Namespace })
}

// deployments returns the Deployments of the namespace.
func (w *icecreams) deployments(store apiserver.Store) []*appsv1.Deployment {
	return slices.DeleteFunc(simulation.All[appsv1.Deployment](w.History, store), func(d *appsv1.Deployment) bool { return d.Namespace != simulation.Namespace })
}

// pods returns the Pods of the namespace.
func (w *icecreams) pods(store apiserver.Store) []*corev1.Pod {
	return slices.DeleteFunc(simulation.All[corev1.Pod](w.History, store), func(pod *corev1.Pod) bool { return pod.Namespace != simulation.Namespace })
}

// Edit implements World.
func (w *icecreams) Edit(draw *rand.Rand) string {
	w.checkBudget()
	w.watch()
	w.edits++
	kinds := []func(*rand.Rand) string{
		w.create, w.scaleIcecream, w.scaleIcecream, w.changeImage, w.changeImage, w.respell, w.changeBoth, w.deleteIcecream, w.replace, w.foreign,
		w.editDeployment, w.editDeployment, w.disturbPod, w.disturbPod, w.policy, w.policy, w.deny, w.deny, w.shortage, w.claim, w.clone,
		w.changeTemplate, w.changeTemplate,
	}
	if w.refusing != 0 && draw.IntN(3) == 0 {
		return w.replace(draw)
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
		return w.scaleIcecream(draw)
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

// edit changes the spec of an Icecream.
func (w *icecreams) edit(draw *rand.Rand, change func(*v1alpha1.Icecream) string) string {
	ice := simulation.Pick(draw, w.ices())
	if ice == nil {
		return ""
	}
	changed := ice.DeepCopy()
	changed.Generation++
	what := change(changed)
	w.edited[ice.UID] = time.Now()
	w.Put(changed)
	return fmt.Sprintf("Icecream %s: %s", ice.Name, what)
}

func (w *icecreams) create(draw *rand.Rand) string {
	name := simulation.Pick(draw, icecreamNames)
	if w.Store.Objects[iceKey(name)] != nil {
		return w.scaleIcecream(draw)
	}
	w.newIcecream(draw, name)
	return "a new Icecream " + name
}

func (w *icecreams) scaleIcecream(draw *rand.Rand) string {
	return w.edit(draw, func(ice *v1alpha1.Icecream) string {
		ice.Spec.Replicas = ptr.To(draw.Int32N(5))
		return fmt.Sprintf("%d replicas", *ice.Spec.Replicas)
	})
}

func (w *icecreams) changeImage(draw *rand.Rand) string {
	return w.edit(draw, func(ice *v1alpha1.Icecream) string {
		ice.Spec.Image = simulation.Pick(draw, images)
		return "image " + ice.Spec.Image
	})
}

// broken is a template that is none.
const broken = `{"spec":{"containers":[{"name":"icecream","evn":[]}]}}`

// changeTemplate changes what else the Pods need.
func (w *icecreams) changeTemplate(draw *rand.Rand) string {
	return w.edit(draw, func(ice *v1alpha1.Icecream) string {
		template := simulation.Pick(draw, []string{
			`{"spec":{"containers":[{"name":"icecream","env":[{"name":"A","value":"1"}]}]}}`,
			`{"spec":{"containers":[{"name":"icecream","env":[{"name":"A","value":"2"},{"name":"B","value":"2"}]}]}}`,
			`{"metadata":{"annotations":{"mesh":"on"}},"spec":{"tolerations":[{"key":"cold"}]}}`,
			`{}`, broken,
		})
		ice.Spec.Template = &runtime.RawExtension{Raw: []byte(template)}
		return "template " + template
	})
}

// isBroken reports whether the Icecream's template is none.
func isBroken(ice *v1alpha1.Icecream) bool {
	return ice.Spec.Template != nil && strings.Contains(string(ice.Spec.Template.Raw), "evn")
}

// variableOf returns the value of a variable in the container icecream; empty if there is none.
func variableOf(template corev1.PodTemplateSpec, name string) string {
	for _, c := range template.Spec.Containers {
		for _, v := range c.Env {
			if c.Name == "icecream" && v.Name == name {
				return v.Value
			}
		}
	}
	return ""
}

// respell asks for the same resources in other words, or for other ones.
func (w *icecreams) respell(draw *rand.Rand) string {
	return w.edit(draw, func(ice *v1alpha1.Icecream) string {
		memory := simulation.Pick(draw, []string{"1Gi", "1073741824", "1024Mi", "2Gi"})
		ice.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
		return "memory " + memory
	})
}

// changeBoth changes the shape and the replicas at once.
func (w *icecreams) changeBoth(draw *rand.Rand) string {
	return w.edit(draw, func(ice *v1alpha1.Icecream) string {
		ice.Spec.Image, ice.Spec.Replicas = simulation.Pick(draw, append(images, denied, denied)), ptr.To(draw.Int32N(5))
		return fmt.Sprintf("image %s, %d replicas", ice.Spec.Image, *ice.Spec.Replicas)
	})
}

func (w *icecreams) deleteIcecream(draw *rand.Rand) string {
	ice := simulation.Pick(draw, w.ices())
	if ice == nil {
		return ""
	}
	policy := simulation.Pick(draw, []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan})
	w.Delete(iceKey(ice.Name), policy)
	what := fmt.Sprintf("Icecream %s is deleted (%s)", ice.Name, policy)
	if w.Store.Objects[iceKey(ice.Name)] == nil && draw.IntN(2) == 0 {
		w.newIcecream(draw, ice.Name)
		what += ", and created again"
	}
	return what
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

// claim creates a Deployment in another namespace that names an Icecream as its owner. It looks
// just like the Icecream's own, and a finalizer keeps it from the garbage collector.
func (w *icecreams) claim(draw *rand.Rand) string {
	ice := simulation.Pick(draw, w.ices())
	if ice == nil {
		return ""
	}
	w.newNamespace(elsewhere)
	labels := map[string]string{icecream.LabelIcecream: ice.Name}
	w.Create(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: elsewhere, Name: simulation.Pick(draw, []string{ice.Name, "claim"}), Labels: labels, Finalizers: []string{hold},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ice, schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Icecream"))},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "icecream", Image: images[1], Command: []string{"/claim"}}}},
			},
		},
	})
	w.Put(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: elsewhere, Name: ice.Name + "-7c8b-claim", Labels: labels, Generation: 1,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: ice.Name + "-7c8b", UID: "claim", Controller: ptr.To(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: "elsewhere", Containers: []corev1.Container{{Name: "icecream", Image: images[0]}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	})
	return fmt.Sprintf("a Deployment elsewhere claims to be of Icecream %s", ice.Name)
}

// clone copies an Icecream's Deployment under another name, with all of its labels, and with or
// without its owner. The copy counts nowhere.
func (w *icecreams) clone(draw *rand.Rand) string {
	d := simulation.Pick(draw, w.deployments(w.Store))
	if d == nil {
		return ""
	}
	copied := d.DeepCopy()
	copied.ObjectMeta = metav1.ObjectMeta{Namespace: d.Namespace, Name: "clone", Labels: d.Labels}
	if draw.IntN(2) == 0 {
		copied.OwnerReferences = d.OwnerReferences
	}
	copied.Status = appsv1.DeploymentStatus{}
	w.Create(copied)
	return fmt.Sprintf("Deployment %s is copied", d.Name)
}

func (w *icecreams) editDeployment(draw *rand.Rand) string {
	d := simulation.Pick(draw, w.deployments(w.Store))
	if d == nil {
		return ""
	}
	return w.editThis(draw, d)
}

func (w *icecreams) editThis(draw *rand.Rand, d *appsv1.Deployment) string {
	w.meddled++
	changed := d.DeepCopy()
	changed.Generation++
	var what string
	switch draw.IntN(10) {
	case 9:
		changed.Spec.Paused = !d.Spec.Paused
		what = fmt.Sprintf("paused: %t", changed.Spec.Paused)
	case 8:
		template := &changed.Spec.Template.Spec
		if template.SecurityContext != nil {
			template.SecurityContext.RunAsNonRoot = nil
		}
		template.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "theirs"}, {Name: "THEIRS", Value: "1"}}
		what = "maybe root, with other variables"
	case 7:
		changed.Finalizers, changed.Generation = append(changed.Finalizers, hold), d.Generation
		w.Put(changed)
		w.Delete(deploymentKey(d.Name), metav1.DeletePropagationBackground)
		return fmt.Sprintf("Deployment %s is deleted, but held", d.Name)
	case 0:
		changed.Spec.Replicas = ptr.To(draw.Int32N(5))
		w.fought[d.Name] = time.Now()
		what = fmt.Sprintf("%d replicas", *changed.Spec.Replicas)
	case 1:
		changed.Spec.Template.Spec.Containers[0].Image = "registry.example/other:1"
		what = "another image"
	case 2:
		changed.OwnerReferences, changed.Generation = nil, d.Generation
		what = "without its owner"
	case 3:
		w.Delete(deploymentKey(d.Name), simulation.Pick(draw, []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}))
		return fmt.Sprintf("Deployment %s is deleted", d.Name)
	case 4:
		changed.Spec.Template.Spec.Containers = append(changed.Spec.Template.Spec.Containers, corev1.Container{Name: "sidecar", Image: images[0]})
		if len(changed.Spec.Template.Spec.Containers) > 2 {
			return ""
		}
		what = "a sidecar"
	case 5:
		changed.Labels = maps.Clone(changed.Labels)
		delete(changed.Labels, "app.kubernetes.io/name")
		changed.Generation = d.Generation
		what = "without a label"
	default:
		changed.Spec.Template.Annotations = maps.Clone(changed.Spec.Template.Annotations)
		metav1.SetMetaDataAnnotation(&changed.Spec.Template.ObjectMeta, "kubectl.kubernetes.io/restartedAt", time.Now().String())
		what = "restarted"
	}
	w.Put(changed)
	return fmt.Sprintf("Deployment %s: %s", d.Name, what)
}

func (w *icecreams) disturbPod(draw *rand.Rand) string {
	pod := simulation.Pick(draw, w.pods(w.Store))
	if pod == nil || pod.Spec.NodeName == "" {
		return ""
	}
	if draw.IntN(2) == 0 {
		changed := pod.DeepCopy()
		simulation.Crash(changed)
		w.Put(changed)
		w.crashed[deploymentOf(pod)] = time.Now()
		return fmt.Sprintf("Pod %s crashes", pod.Name)
	}
	w.Delete(simulation.KeyOf("", "pods", pod.Name), metav1.DeletePropagationBackground)
	return fmt.Sprintf("Pod %s is evicted", pod.Name)
}

// policy is what others do to each write from now on.
func (w *icecreams) policy(draw *rand.Rand) string {
	switch draw.IntN(6) {
	case 0:
		w.undoing, w.isOpposed = !w.undoing, true
		return fmt.Sprintf("somebody undoes each write: %t", w.undoing)
	case 1:
		w.rewriting, w.pinning, w.hasAltered = !w.rewriting, 0, true
		return fmt.Sprintf("a webhook rewrites images: %t", w.rewriting)
	case 2:
		w.pushed++
		w.rewriting, w.pinning, w.hasAltered = false, w.pushed, true
		return fmt.Sprintf("a webhook gives each tag its digest, which is number %d now", w.pinning)
	case 3:
		if w.most = draw.Int32N(3); w.most == 0 {
			return "no policy lowers the replicas any more"
		}
		w.hasAltered = true
		return fmt.Sprintf("a policy allows %d replicas at most", w.most)
	case 4:
		w.refusing, w.isOpposed = http.StatusForbidden, true
		return "a quota refuses new Deployments with 403" + w.deleteDeployment(draw)
	default:
		w.refusing, w.isOpposed = http.StatusConflict, true
		return "a quota refuses new Deployments with 409" + w.deleteDeployment(draw)
	}
}

// deny is a webhook that refuses one image, and somebody who asks for it and for other replicas.
func (w *icecreams) deny(draw *rand.Rand) string {
	w.denying, w.isOpposed = simulation.Pick(draw, []int32{0, 0, 0, 401, 403, 404, 409, 429, 500, 503}), true
	if w.denying == 0 {
		return "no webhook refuses an image any more"
	}
	return fmt.Sprintf("a webhook refuses %s with %d; ", denied, w.denying) + w.edit(draw, func(ice *v1alpha1.Icecream) string {
		ice.Spec.Image, ice.Spec.Replicas = denied, ptr.To(draw.Int32N(5))
		return fmt.Sprintf("image %s, %d replicas", denied, *ice.Spec.Replicas)
	})
}

// deleteDeployment deletes a Deployment, and says so.
func (w *icecreams) deleteDeployment(draw *rand.Rand) string {
	d := simulation.Pick(draw, w.deployments(w.Store))
	if d == nil {
		return ""
	}
	w.edits++ // It may have to be created again.
	w.meddled++
	w.Delete(deploymentKey(d.Name), metav1.DeletePropagationBackground)
	return fmt.Sprintf("; Deployment %s is deleted", d.Name)
}

// Settle implements World. Whoever has undone writes was waited for, longer each time, and what
// never gets ready is given the time until its deadline.
func (w *icecreams) Settle() time.Duration {
	w.undoing, w.rewriting, w.pinning, w.most, w.refusing, w.denying = false, false, 0, 0, 0, 0
	w.RejectUntil = time.Now()
	for _, d := range simulation.All[appsv1.Deployment](w.History, w.Store) {
		if slices.Contains(d.Finalizers, hold) {
			changed := d.DeepCopy()
			changed.Finalizers = slices.DeleteFunc(changed.Finalizers, func(f string) bool { return f == hold })
			w.Put(changed)
			key := deploymentKey(d.Name)
			key.Namespace = d.Namespace
			w.Delete(key, metav1.DeletePropagationBackground)
		}
	}
	settle := 3 * time.Minute
	for _, ice := range w.ices() {
		d := simulation.Get[appsv1.Deployment](w.History, w.Store, deploymentKey(icecream.DeploymentName(ice)))
		settle = max(settle, 2*time.Minute+w.deadlineOf(own(d, ice)))
	}
	if w.isOpposed { // What was refused or undone may have to wait, and is not Stalled before.
		settle += 12 * time.Minute
	}
	return settle
}

// deadlineOf returns how long a Deployment can make no progress, or an Icecream wait for somebody else.
func (w *icecreams) deadlineOf(d *appsv1.Deployment) time.Duration {
	if d == nil {
		return 10 * time.Minute
	}
	return time.Duration(ptr.Deref(d.Spec.ProgressDeadlineSeconds, 600)) * time.Second
}

// own returns a Deployment if it is the Icecream's; otherwise nil.
func own(d *appsv1.Deployment, ice *v1alpha1.Icecream) *appsv1.Deployment {
	if d != nil && metav1.IsControlledBy(d, ice) {
		return d
	}
	return nil
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
	return simulation.Pick(draw, []func(*rand.Rand) string{w.scaleIcecream, w.deleteIcecream, w.changeImage, w.editDeployment})(draw)
}

// Admit implements World.
func (w *icecreams) Admit(a apiserver.Admission) error {
	d, ok := a.Object.(*appsv1.Deployment)
	if ok && a.Verb == "create" {
		w.attempted[ptr.Deref(metav1.GetControllerOfNoCopy(d), metav1.OwnerReference{}).UID] = true
	}
	switch {
	case w.denying > 0 && ok && a.Old != nil && hasImage(d, denied) && !hasImage(a.Old.(*appsv1.Deployment), denied):
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: w.denying, Message: `admission webhook "flavors.example.com" denied the request: no mint today`,
			Details: &metav1.StatusDetails{Group: a.Key.Resource.Group, Kind: a.Key.Resource.Resource, Name: a.Key.Name},
		}}
	case a.Verb != "create" || a.Key.Resource.Resource != "deployments" || w.refusing == 0:
		return nil
	case w.refusing == http.StatusConflict:
		return apierrors.NewConflict(a.Key.Resource, a.Key.Name, fmt.Errorf("Operation cannot be fulfilled on resourcequotas: the object has been modified"))
	default:
		return apierrors.NewForbidden(a.Key.Resource, a.Key.Name, fmt.Errorf("exceeded quota"))
	}
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
		for _, d := range w.deployments(w.Store) {
			if d.DeletionTimestamp == nil && ptr.Deref(d.Spec.Replicas, 1) != 1 {
				changed := d.DeepCopy()
				changed.Generation++
				changed.Spec.Replicas = ptr.To[int32](1)
				w.fought[d.Name] = time.Now()
				w.Put(changed)
			}
		}
	}
	next := w.Workloads.Act()
	for _, pod := range w.pods(w.Store) {
		if pod.Status.Phase == corev1.PodFailed || strings.Contains(pod.Spec.Containers[0].Image, "crashing") {
			w.crashed[deploymentOf(pod)] = time.Now()
		}
	}
	return next
}

// deploymentOf returns the name of a Pod's Deployment.
func deploymentOf(pod *corev1.Pod) string {
	name, _, _ := strings.Cut(pod.Name, "-")
	return name
}

// owner returns the Icecream that controls a Deployment; nil if there is none.
func (w *icecreams) owner(store apiserver.Store, d *appsv1.Deployment) *v1alpha1.Icecream {
	owner := metav1.GetControllerOfNoCopy(d)
	if owner == nil || !icecream.IsControlledByIcecream(d) {
		return nil
	}
	ice := simulation.Get[v1alpha1.Icecream](w.History, store, iceKey(owner.Name))
	if ice == nil || ice.UID != owner.UID {
		return nil
	}
	return ice
}

// Check implements World.
func (w *icecreams) Check(x simulation.Exchange) {
	if x.Request.Method == http.MethodGet {
		return
	}
	switch x.Key.Resource.Resource {
	case "leases", "events":
		return
	}
	if w.started.IsZero() {
		w.started = time.Now()
	}
	w.watch()
	if x.Key.Namespace == elsewhere {
		w.checkElsewhere(x)
		return
	}
	// While somebody refuses or undoes writes, a refused one counts, too. A conflict does not:
	// somebody else was faster. checkRefused limits how often a create is refused, also with 409.
	isRefused := !x.IsWrite() && x.Response.Code != http.StatusConflict
	if x.IsWrite() || w.isOpposed && isRefused {
		w.writes[x.Verb+" "+x.Key.Resource.Resource]++
	}
	if !x.IsWrite() {
		w.checkRefused(x)
		if x.Subresource == "status" && x.Response.Code == http.StatusOK {
			w.Fail("needless", "%s writes the status that %s has", x.Process.Name, simulation.Describe(x.Key))
		}
		return
	}
	before := simulation.Get[appsv1.Deployment](w.History, x.Before, x.Key)
	after := simulation.Get[appsv1.Deployment](w.History, x.After, x.Key)
	switch {
	case x.Key.Resource.Resource == "icecreams" && x.Verb == "update" && x.Subresource == "status":
		w.checkStatus(x)
	case x.Key.Resource.Resource != "deployments":
		w.Fail("permissions", "%s: %s %s", x.Process.Name, x.Verb, simulation.Describe(x.Key))
	case x.Verb == "create":
		w.checkCreate(x, after)
	case x.Verb == "patch":
		w.checkPatch(x, before, after)
	default:
		w.Fail("permissions", "%s: %s %s", x.Process.Name, x.Verb, simulation.Describe(x.Key))
	}
}

// checkElsewhere checks that the Icecream of another namespace gets what is its own.
func (w *icecreams) checkElsewhere(x simulation.Exchange) {
	key := iceKey(x.Key.Name)
	key.Namespace = elsewhere
	ice := simulation.Get[v1alpha1.Icecream](w.History, x.Before, key)
	d := simulation.Get[appsv1.Deployment](w.History, x.After, x.Key)
	isOthers := d != nil && metav1.GetControllerOfNoCopy(d) != nil && !metav1.IsControlledBy(d, ice) // It may have lost its owner just before.
	if ice == nil || x.IsWrite() && isOthers {
		w.Fail("namespace", "%s: %s %s", x.Process.Name, x.Verb, simulation.Describe(x.Key))
	}
}

// watch looks, while nothing goes wrong, for what is not as it should be for longer than it may be,
// whatever else is refused: a new Icecream for which nothing was asked for, replicas that were
// scaled, and a status.
func (w *icecreams) watch() {
	if !w.IsCalm() || w.started.IsZero() {
		return
	}
	wrong := map[string]time.Duration{}
	for _, ice := range w.ices() {
		name := icecream.DeploymentName(ice)
		d := simulation.Get[appsv1.Deployment](w.History, w.Store, deploymentKey(name))
		switch {
		case ice.DeletionTimestamp != nil || !w.IsOpen():
		case d == nil && w.oldest(w.Store, name) == ice && !w.attempted[ice.UID] && !isBroken(ice):
			wrong[fmt.Sprintf("Icecream %s (%s): nobody has tried to create Deployment %s", ice.Name, ice.UID, name)] = 1500 * time.Millisecond
		case d == nil || d.DeletionTimestamp != nil || !metav1.IsControlledBy(d, ice):
		default:
			// An old image that was stopped does not start because another one is refused.
			isStopped := *d.Spec.Replicas == 0 && w.isOpposed
			if *d.Spec.Replicas != *ice.Spec.Replicas && time.Since(w.fought[name]) > 15*time.Minute && !isStopped && !w.hasLowered {
				wrong[fmt.Sprintf("Icecream %s (generation %d): there are %d replicas instead of %d", ice.Name, ice.Generation, *d.Spec.Replicas, *ice.Spec.Replicas)] = time.Second
			}
			if reason := readyOf(ice).Reason; w.hasFailing(d, ice) && (reason == v1alpha1.ReasonProgressing || reason == v1alpha1.ReasonPodNotReady) && d.Status.UpdatedReplicas > 0 {
				wrong[fmt.Sprintf("Icecream %s (%s): Pods fail, and it says %s", ice.Name, ice.UID, reason)] = 10 * time.Second
			}
			if !w.hasCounts(w.Store, ice) {
				wrong[fmt.Sprintf("Icecream %s (%s): the status is old", ice.Name, ice.UID)] = 20 * time.Second
			}
		}
	}
	for what := range w.late {
		if _, still := wrong[what]; !still {
			delete(w.late, what)
		}
	}
	for what, most := range wrong {
		if w.late[what].IsZero() {
			w.late[what] = time.Now()
		}
		if since := time.Since(w.late[what]); since > most {
			w.Fail("late", "%s, for %s", what, since)
		}
	}
}

// hasFailing reports whether a node has just rejected a Pod that is made from an Icecream's spec.
func (w *icecreams) hasFailing(d *appsv1.Deployment, ice *v1alpha1.Icecream) bool {
	return time.Now().Before(w.RejectUntil) && hasImage(d, ice.Spec.Image) && slices.ContainsFunc(w.pods(w.Store), func(pod *corev1.Pod) bool {
		isOf := strings.HasPrefix(pod.Name, d.Name+"-") && plain(pod.Spec.Containers[0].Image) == plain(ice.Spec.Image)
		return isOf && pod.Status.Phase == corev1.PodFailed && pod.CreationTimestamp.After(w.edited[ice.UID]) && time.Since(pod.CreationTimestamp.Time) < 30*time.Second
	})
}

// oldest returns the oldest Icecream that asks for a name and is not being deleted.
func (w *icecreams) oldest(store apiserver.Store, name string) (oldest *v1alpha1.Icecream) {
	for _, ice := range w.asking(store, name) {
		if ice.DeletionTimestamp == nil && (oldest == nil || icecream.IsOlder(ice, oldest)) {
			oldest = ice
		}
	}
	return oldest
}

// checkRefused checks that a create that is refused was not known to be in vain, and is not
// repeated at once, again and again.
func (w *icecreams) checkRefused(x simulation.Exchange) {
	var status metav1.Status
	if x.Verb != "create" || json.Unmarshal(x.Response.Body, &status) != nil {
		return
	}
	asking, known := w.asking(x.Before, x.Key.Name), map[types.UID]bool{}
	for _, store := range w.seen(x, "icecreams") {
		for _, ice := range w.asking(store, x.Key.Name) {
			known[ice.UID] = true
		}
	}
	most := 9 // within a second, for each Icecream: at once, and after 5 ms, 10 ms, and so on
	switch status.Reason {
	case metav1.StatusReasonForbidden, metav1.StatusReasonNotFound:
		if w.IsCalm() && len(asking) > 0 { // so that the status can be written
			most = 3 // at once, after an event, and after a second
		}
	case metav1.StatusReasonConflict: // about a quota
		most *= 2 // after as many events, too
	case metav1.StatusReasonAlreadyExists:
		if !slices.ContainsFunc(w.seen(x, "deployments"), func(store apiserver.Store) bool { return store.Objects[x.Key] == nil }) {
			w.Fail("needless", "%s creates %s, which its cache shows", x.Process.Name, simulation.Describe(x.Key))
		}
	default:
		return
	}
	id := fmt.Sprint(x.Process.Name, " ", x.Key.Name, " ", status.Reason)
	for _, ice := range asking { // An edit is reason enough to try again.
		id += fmt.Sprintf(" %s %d", ice.UID, ice.Generation)
	}
	w.refused[id] = append(slices.DeleteFunc(w.refused[id], func(at time.Time) bool { return time.Since(at) > time.Second }), time.Now())
	if n := len(w.refused[id]); n > most*len(known) {
		w.Fail("hot loop", "%s: %s %s was refused %d times within a second: %s", x.Process.Name, x.Verb, simulation.Describe(x.Key), n, status.Message)
	}
}

// asking returns the Icecreams that ask for a Deployment of a name.
func (w *icecreams) asking(store apiserver.Store, name string) []*v1alpha1.Icecream {
	return slices.DeleteFunc(w.icesIn(store), func(ice *v1alpha1.Icecream) bool { return icecream.DeploymentName(ice) != name })
}

// seen returns the states of a resource that the process can have acted on.
func (w *icecreams) seen(x simulation.Exchange, resource string) []apiserver.Store {
	return w.Since(x.Process.Knew(resource, x.Decided))
}

// checkOwner checks that an Icecream is not being deleted, as far as the process can know.
func (w *icecreams) checkOwner(x simulation.Exchange, d *appsv1.Deployment) {
	owner := metav1.GetControllerOfNoCopy(d)
	for _, store := range w.seen(x, "icecreams") {
		if ice := w.owner(store, d); ice != nil && ice.DeletionTimestamp == nil {
			return
		}
	}
	w.Fail("owner", "%s: %s %s, although Icecream %s has been gone or being deleted for long", x.Process.Name, x.Verb, simulation.Describe(x.Key), owner.Name)
}

// checkLive checks that an Icecream was not being deleted when the process last looked.
func (w *icecreams) checkLive(x simulation.Exchange, d *appsv1.Deployment) {
	owner := metav1.GetControllerOfNoCopy(d)
	if ice := w.owner(w.Since(x.Checked(iceKey(owner.Name)))[0], d); ice == nil || ice.DeletionTimestamp != nil {
		w.Fail("live", "%s: %s %s, although Icecream %s was gone or being deleted when it sent that", x.Process.Name, x.Verb, simulation.Describe(x.Key), owner.Name)
	}
}

func (w *icecreams) checkCreate(x simulation.Exchange, d *appsv1.Deployment) {
	owner := metav1.GetControllerOfNoCopy(d)
	if owner == nil || !icecream.IsControlledByIcecream(d) {
		w.Fail("owner", "%s creates %s without an Icecream", x.Process.Name, simulation.Describe(x.Key))
		return
	}
	w.checkOwner(x, d)
	w.checkTemplate(x, nil, d)
	if !slices.ContainsFunc(w.seen(x, "icecreams"), func(store apiserver.Store) bool {
		oldest := w.oldest(store, d.Name)
		return oldest == nil || oldest.UID == owner.UID
	}) {
		w.Fail("older", "%s creates %s for %s, although an older Icecream asks for it", x.Process.Name, simulation.Describe(x.Key), owner.Name)
	}
	if seen := w.owner(w.seen(x, "icecreams")[0], d); seen != nil && seen.Status.ObservedGeneration > 0 {
		w.checkLive(x, d)
	}
	for _, store := range w.seen(x, "icecreams") {
		if ice := w.owner(store, d); ice != nil && icecream.DeploymentName(ice) == d.Name {
			return
		}
	}
	w.Fail("name", "%s creates %s, which nobody has asked for", x.Process.Name, simulation.Describe(x.Key))
}

func (w *icecreams) checkPatch(x simulation.Exchange, before, after *appsv1.Deployment) {
	switch {
	case before == nil:
		w.Fail("ownership", "%s: a patch created %s", x.Process.Name, simulation.Describe(x.Key))
		return
	case before.DeletionTimestamp != nil && !w.wasAlive(x, before):
		w.Fail("deleted", "%s changes %s, which is being deleted", x.Process.Name, simulation.Describe(x.Key))
	case metav1.GetControllerOfNoCopy(before) != nil && !icecream.IsControlledByIcecream(before),
		metav1.GetControllerOfNoCopy(before) == nil && before.Labels[icecream.LabelIcecream] == "":
		w.Fail("ownership", "%s changes %s, which is somebody else's", x.Process.Name, simulation.Describe(x.Key))
	case metav1.GetControllerOfNoCopy(before) != nil && !haveSameOwner(before, after):
		w.Fail("ownership", "%s takes %s from its owner", x.Process.Name, simulation.Describe(x.Key))
	}
	w.checkTemplate(x, before, after)
	if ice := w.owner(x.Before, after); ice != nil && *before.Spec.Replicas == 0 && *after.Spec.Replicas > 0 && !x.IsLate {
		if !slices.ContainsFunc(w.seen(x, "icecreams"), func(store apiserver.Store) bool {
			seen := w.owner(store, after)
			return seen != nil && hasImage(after, seen.Spec.Image)
		}) {
			w.Fail("stopped", "%s starts an old image of %s, which was stopped", x.Process.Name, simulation.Describe(x.Key))
		}
	}
	if metav1.GetControllerOfNoCopy(after) != nil { // It may have lost its owner just before.
		w.checkOwner(x, after)
	}
}

// checkTemplate checks that a process replaces no Pods unless it is asked for others: not when it scales, and not
// after a restart by what a tag has become. before is nil for a new Deployment.
func (w *icecreams) checkTemplate(x simulation.Exchange, before, after *appsv1.Deployment) {
	if before != nil && equality.Semantic.DeepEqual(before.Spec.Template, after.Spec.Template) {
		return
	}
	last := w.made[after.UID]
	delete(w.made, after.UID)
	asked, isCertain := w.askedFor(x, after)
	if !isCertain || x.IsLate {
		return
	}
	isSame := before != nil && equality.Semantic.DeepEqual(last.spec, asked) && equality.Semantic.DeepEqual(last.template, before.Spec.Template) &&
		last.isRewritten == w.rewriting && last.isPinned == (w.pinning > 0) // One that acts on updates changes what is only scaled, too.
	if isSame && (last.process == x.Process.Name || strings.HasPrefix(last.template.Spec.Containers[0].Image, asked.Image)) {
		w.Fail("restart", "%s replaces the Pods of %s, although nobody has asked for others", x.Process.Name, simulation.Describe(x.Key))
	}
	if hasImage(after, asked.Image) {
		w.made[after.UID] = made{x.Process.Name, asked, after.Spec.Template, w.rewriting, w.pinning > 0}
	}
}

// askedFor returns the spec of the Icecream that controls a Deployment, but for the replicas. It is certain if the
// process can have seen no other.
func (w *icecreams) askedFor(x simulation.Exchange, d *appsv1.Deployment) (asked v1alpha1.IcecreamSpec, isCertain bool) {
	for i, store := range w.seen(x, "icecreams") {
		ice := w.owner(store, d)
		if ice == nil {
			return asked, false
		}
		spec := ice.Spec
		spec.Replicas = nil
		if i > 0 && !equality.Semantic.DeepEqual(asked, spec) {
			return asked, false
		}
		asked = spec
	}
	return asked, true
}

func haveSameOwner(a, b *appsv1.Deployment) bool {
	ofA, ofB := metav1.GetControllerOfNoCopy(a), metav1.GetControllerOfNoCopy(b)
	return ofA != nil && ofB != nil && ofA.UID == ofB.UID
}

// wasAlive reports whether the process can have seen a Deployment that was not being deleted.
func (w *icecreams) wasAlive(x simulation.Exchange, d *appsv1.Deployment) bool {
	return slices.ContainsFunc(w.seen(x, "deployments"), func(store apiserver.Store) bool {
		seen := simulation.Get[appsv1.Deployment](w.History, store, x.Key)
		return seen != nil && seen.UID == d.UID && seen.DeletionTimestamp == nil
	})
}

// checkStatus checks that a status was true when it was computed.
func (w *icecreams) checkStatus(x simulation.Exchange) {
	ice := simulation.Get[v1alpha1.Icecream](w.History, x.After, x.Key)
	s := ice.Status
	if ice.DeletionTimestamp != nil {
		w.Fail("status", "%s writes the status of %s, which is being deleted", x.Process.Name, simulation.Describe(x.Key))
	}
	if s.ObservedGeneration != ice.Generation {
		w.Fail("status", "%s: observedGeneration of %s is %d, not %d", x.Process.Name, simulation.Describe(x.Key), s.ObservedGeneration, ice.Generation)
	}
	if readyOf(ice).Reason == v1alpha1.ReasonErrResourceExists && w.isLeftOver(x, ice) {
		w.Fail("status", "%s: %s warns of its Deployment, which is left of an Icecream that was gone", x.Process.Name, simulation.Describe(x.Key))
	}
	w.checkStalled(x, ice)
	w.checkRate(x, ice)
	var trues int
	for _, c := range s.Conditions {
		if c.Status == metav1.ConditionTrue {
			trues++
		}
	}
	if trues != 1 || len(s.Conditions) != 3 {
		w.Fail("status", "%s: %s has %d conditions, of which %d are True", x.Process.Name, simulation.Describe(x.Key), len(s.Conditions), trues)
	}
	if !slices.ContainsFunc(w.seen(x, "deployments"), func(store apiserver.Store) bool { return w.hasCounts(store, ice) }) {
		w.Fail("status", "%s: the counts of %s have not been true: %s", x.Process.Name, simulation.Describe(x.Key), countsOf(s))
	}
	if isReadyIcecream(ice) && !slices.ContainsFunc(w.seen(x, "deployments"), func(store apiserver.Store) bool { return w.isComplete(store, ice) }) {
		w.Fail("status", "%s: %s has never been ready: %s", x.Process.Name, simulation.Describe(x.Key), countsOf(s))
	}
	if !w.knewReason(x, ice) {
		w.Fail("reason", "%s: %s gives a reason that has never been true: %s", x.Process.Name, simulation.Describe(x.Key), readyOf(ice).Message)
	}
	// Which Deployments are the Icecream's, and where the Pods are, comes from two caches.
	for _, pods := range w.seen(x, "pods") {
		for _, deployments := range w.seen(x, "deployments") {
			if slices.Equal(w.nodesOf(pods, deployments, ice), s.Nodes) {
				return
			}
		}
	}
	w.Fail("status", "%s: the placement of %s has not been true since version %d of Pods and %d of Deployments, %s ago: %v",
		x.Process.Name, simulation.Describe(x.Key), x.Process.Knew("pods", x.Decided), x.Process.Knew("deployments", x.Decided), time.Since(x.Decided), s.Nodes)
}

// readyOf returns the condition that says whether an Icecream is Ready, and why not.
func readyOf(ice *v1alpha1.Icecream) metav1.Condition {
	return ptr.Deref(meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady), metav1.Condition{})
}

// checkStalled checks that an Icecream is Stalled only if its spec is at fault, if its Deployment has timed out, or
// if it has waited long enough for what only somebody else can end.
func (w *icecreams) checkStalled(x simulation.Exchange, ice *v1alpha1.Icecream) {
	before := simulation.Get[v1alpha1.Icecream](w.History, x.Before, x.Key)
	if !isTrue(ice, v1alpha1.ConditionStalled) || isTrue(before, v1alpha1.ConditionStalled) {
		return
	}
	switch readyOf(ice).Reason {
	case v1alpha1.ReasonInvalidSpec:
	case v1alpha1.ReasonDeploymentRefused, v1alpha1.ReasonErrResourceExists, v1alpha1.ReasonDeploymentContested, v1alpha1.ReasonDeploymentTerminating:
		if was := readyOf(before); was.Status != metav1.ConditionFalse || time.Since(was.LastTransitionTime.Time) < 10*time.Minute {
			w.Fail("stalled", "%s: %s is Stalled (%s), and was Ready a short time ago", x.Process.Name, simulation.Describe(x.Key), readyOf(ice).Reason)
		}
	default:
		if !slices.ContainsFunc(w.seen(x, "deployments"), func(store apiserver.Store) bool {
			return hasTimedOut(simulation.Get[appsv1.Deployment](w.History, store, deploymentKey(icecream.DeploymentName(ice))))
		}) {
			w.Fail("stalled", "%s: %s is Stalled (%s), and its Deployment is not", x.Process.Name, simulation.Describe(x.Key), readyOf(ice).Reason)
		}
	}
}

// hasTimedOut reports whether a Deployment has made no progress for too long.
func hasTimedOut(d *appsv1.Deployment) bool {
	return d != nil && conditionOf(d, appsv1.DeploymentProgressing).Reason == v1alpha1.ReasonProgressDeadlineExceeded
}

// checkRate checks that statuses which only have other numbers, nodes or words come two seconds apart.
func (w *icecreams) checkRate(x simulation.Exchange, ice *v1alpha1.Icecream) {
	last, isKnown := w.reported[ice.UID]
	w.reported[ice.UID] = report{x.Process.Name, time.Now(), ice.Status}
	hasTurned := slices.ContainsFunc(ice.Status.Conditions, func(is metav1.Condition) bool {
		was := meta.FindStatusCondition(last.status.Conditions, is.Type)
		return was == nil || was.Status != is.Status || was.Reason != is.Reason
	})
	if w.IsCalm() && isKnown && last.process == x.Process.Name && !hasTurned && !x.IsLate && time.Since(last.at) < 1900*time.Millisecond {
		w.Fail("rate", "%s: %s has only other numbers than %s ago", x.Process.Name, simulation.Describe(x.Key), time.Since(last.at))
	}
}

// knewReason reports whether the process's three caches can have shown what makes the reason true that
// an Icecream gives.
func (w *icecreams) knewReason(x simulation.Exchange, ice *v1alpha1.Icecream) bool {
	for _, icecreams := range w.seen(x, "icecreams") {
		for _, deployments := range w.seen(x, "deployments") {
			for _, pods := range w.seen(x, "pods") {
				if w.isTrueReason(icecreams, deployments, pods, ice) {
					return true
				}
			}
		}
	}
	return false
}

// isTrueReason reports whether the reason that an Icecream gives is true, if this is what the caches
// show.
func (w *icecreams) isTrueReason(icecreams, deployments, pods apiserver.Store, ice *v1alpha1.Icecream) bool {
	name := icecream.DeploymentName(ice)
	d := simulation.Get[appsv1.Deployment](w.History, deployments, deploymentKey(name))
	isOwn := own(d, ice) != nil
	switch ready := readyOf(ice); ready.Reason {
	case v1alpha1.ReasonProgressDeadlineExceeded:
		return isOwn && hasTimedOut(d)
	case v1alpha1.ReasonDeploymentRefused: // or writes have failed for ten seconds
		isRefusal := strings.Contains(ready.Message, "denied the request") || strings.Contains(ready.Message, "quota")
		return (w.isOpposed || !isRefusal) && !strings.Contains(ready.Message, "being terminated") // which is DeploymentTerminating
	case v1alpha1.ReasonDeploymentAltered:
		return isOwn && w.hasLowered && *d.Spec.Replicas < *ice.Spec.Replicas
	case v1alpha1.ReasonErrResourceExists:
		return d != nil && !isOwn && d.DeletionTimestamp == nil || d == nil && w.oldest(icecreams, name) != ice
	case v1alpha1.ReasonDeploymentTerminating:
		namespace := deployments.Objects[simulation.NamespaceKey]
		isOpen := namespace != nil && namespace.GetDeletionTimestamp() == nil
		return !isOpen || d != nil && (d.DeletionTimestamp != nil || icecream.IsControlledByIcecream(d) && metav1.GetControllerOfNoCopy(d).Name == ice.Name && !isOwn)
	case v1alpha1.ReasonDeploymentContested:
		return w.isOpposed || w.meddled >= 3
	case v1alpha1.ReasonAvailable, v1alpha1.ReasonProgressing, v1alpha1.ReasonInvalidSpec:
		return true
	default:
		return isOwn && w.problems(pods, d)[ready.Reason]
	}
}

// problems returns the reasons for which Pods of a Deployment do not become ready.
func (w *icecreams) problems(store apiserver.Store, d *appsv1.Deployment) map[string]bool {
	// A crash or a failure counts for a minute.
	hasCrashed := !w.crashed[d.Name].IsZero() && time.Since(w.crashed[d.Name]) < 2*time.Minute
	reasons := map[string]bool{
		v1alpha1.ReasonPodFailed:                hasCrashed,
		v1alpha1.ReasonDeploymentPaused:         d.Spec.Paused,
		v1alpha1.ReasonProgressDeadlineExceeded: hasTimedOut(d),
		v1alpha1.ReasonReplicaFailure:           conditionOf(d, appsv1.DeploymentReplicaFailure).Reason != "",
		v1alpha1.ReasonCrashLoopBackOff:         hasCrashed,
		v1alpha1.ReasonDeploymentAltered:        w.hasLowered,
	}
	for _, pod := range w.pods(store) {
		switch image := pod.Spec.Containers[0].Image; {
		case !strings.HasPrefix(pod.Name, d.Name+"-"):
		case pod.Status.Phase == corev1.PodFailed:
			reasons[v1alpha1.ReasonPodFailed] = true
		case simulation.IsReady(pod):
		case simulation.IsUnschedulable(pod):
			reasons[v1alpha1.ReasonUnschedulable] = true
		case simulation.WaitsFor(pod) == "ErrImagePull":
			reasons[v1alpha1.ReasonImagePullBackOff] = true
		case strings.Contains(image, "crashing"):
			reasons[v1alpha1.ReasonCrashLoopBackOff] = true
			reasons[v1alpha1.ReasonPodNotReady] = true // before its first end
		case strings.Contains(image, "unstartable"):
			reasons[v1alpha1.ReasonContainerError] = true
			reasons[v1alpha1.ReasonPodNotReady] = true // before its first start
		default:
			reasons[v1alpha1.ReasonPodNotReady] = true
		}
	}
	return reasons
}

func conditionOf(d *appsv1.Deployment, of appsv1.DeploymentConditionType) (c appsv1.DeploymentCondition) {
	for _, is := range d.Status.Conditions {
		if is.Type == of {
			c = is
		}
	}
	return c
}

// isLeftOver reports whether all that the process can have seen under the name of an Icecream's
// Deployment is one of another Icecream that was gone. The garbage collector deletes it soon.
func (w *icecreams) isLeftOver(x simulation.Exchange, ice *v1alpha1.Icecream) bool {
	for _, deployments := range w.seen(x, "deployments") {
		d := simulation.Get[appsv1.Deployment](w.History, deployments, deploymentKey(icecream.DeploymentName(ice)))
		if d == nil || !icecream.IsControlledByIcecream(d) || metav1.IsControlledBy(d, ice) || metav1.GetControllerOfNoCopy(d).Name != ice.Name {
			return false
		}
		if slices.ContainsFunc(w.seen(x, "icecreams"), func(store apiserver.Store) bool { return w.owner(store, d) != nil }) {
			return false
		}
	}
	return true
}

func countsOf(s v1alpha1.IcecreamStatus) string {
	return fmt.Sprintf("%d Pods, %d ready, %d available", s.Replicas, s.ReadyReplicas, s.AvailableReplicas)
}

// hasCounts reports whether the Icecream's Deployment has what the status says of it.
func (w *icecreams) hasCounts(store apiserver.Store, ice *v1alpha1.Icecream) bool {
	var has appsv1.DeploymentStatus
	d := own(simulation.Get[appsv1.Deployment](w.History, store, deploymentKey(icecream.DeploymentName(ice))), ice)
	if d != nil {
		has = d.Status
	}
	s := ice.Status
	updated := has.UpdatedReplicas
	if d != nil && has.ObservedGeneration < d.Generation {
		updated = 0
	}
	return updated == s.UpdatedReplicas && has.Replicas == s.Replicas && has.ReadyReplicas == s.ReadyReplicas && has.AvailableReplicas == s.AvailableReplicas
}

func isReadyIcecream(ice *v1alpha1.Icecream) bool { return isTrue(ice, v1alpha1.ConditionReady) }

func isTrue(ice *v1alpha1.Icecream, condition string) bool {
	return meta.IsStatusConditionTrue(ice.Status.Conditions, condition)
}

// isComplete reports whether the Icecream's Deployment is rolled out.
func (w *icecreams) isComplete(store apiserver.Store, ice *v1alpha1.Icecream) bool {
	d := simulation.Get[appsv1.Deployment](w.History, store, deploymentKey(icecream.DeploymentName(ice)))
	if own(d, ice) == nil {
		return false
	}
	wanted := ptr.Deref(d.Spec.Replicas, 1)
	return wanted >= ptr.Deref(ice.Spec.Replicas, 1) && d.Status.ObservedGeneration == d.Generation &&
		d.Status.Replicas == wanted && d.Status.AvailableReplicas == wanted && d.Status.UpdatedReplicas == wanted
}

// nodesOf returns where the Pods of an Icecream are.
func (w *icecreams) nodesOf(pods, deployments apiserver.Store, ice *v1alpha1.Icecream) []v1alpha1.IcecreamNode {
	d := simulation.Get[appsv1.Deployment](w.History, deployments, deploymentKey(icecream.DeploymentName(ice)))
	if own(d, ice) == nil || d.Status.ObservedGeneration == 0 {
		return nil
	}
	counts := map[string]v1alpha1.IcecreamNode{}
	for _, pod := range w.pods(pods) {
		isOurs := pod.Labels[icecream.LabelIcecream] == ice.Name && strings.HasPrefix(pod.Name, d.Name+"-")
		if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Spec.NodeName == "" || !isOurs {
			continue
		}
		node := counts[pod.Spec.NodeName]
		node.Name = pod.Spec.NodeName
		node.Pods++
		if simulation.IsReady(pod) {
			node.ReadyPods++
		}
		counts[node.Name] = node
	}
	var nodes []v1alpha1.IcecreamNode
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		nodes = append(nodes, counts[name])
	}
	return nodes
}

// CheckEnd implements World.
func (w *icecreams) CheckEnd() {
	for _, d := range w.deployments(w.Store) {
		if icecream.IsControlledByIcecream(d) && w.owner(w.Store, d) == nil {
			w.Fail("end", "Deployment %s is left of an Icecream that is gone", d.Name)
		}
	}
	for _, ice := range w.ices() {
		if ice.DeletionTimestamp == nil {
			w.checkEnd(ice)
		}
	}
	w.checkBudget()
}

// checkBudget checks that a history without faults costs few writes of Deployments: one for a launch, and one for an
// edit, which can be the deletion of a Deployment. Somebody who undoes or refuses writes makes each of them be
// repeated. For statuses, see checkRate.
func (w *icecreams) checkBudget() {
	for what, n := range w.writes {
		most := w.launched + w.edits
		switch {
		case strings.HasPrefix(what, "update"):
			most = 8*w.launched + 12*w.edits
		case w.isOpposed:
			most *= 10 // at once, twice for an edit of two parts, and then after 1 s, 2 s, 4 s, and so on
		}
		if n > most && w.IsCalm() {
			w.Fail("budget", "%d times %s for %d Icecreams and %d edits", n, what, w.launched, w.edits)
		}
	}
}

// checkEnd checks that an Icecream has what it asks for, and says so.
func (w *icecreams) checkEnd(ice *v1alpha1.Icecream) {
	name := icecream.DeploymentName(ice)
	d := simulation.Get[appsv1.Deployment](w.History, w.Store, deploymentKey(name))
	fail := func(format string, args ...any) {
		w.Fail("end", "Icecream %s: %s", ice.Name, fmt.Sprintf(format, args...))
	}
	if ice.Status.ObservedGeneration != ice.Generation {
		fail("the status is about generation %d, not %d", ice.Status.ObservedGeneration, ice.Generation)
		return
	}
	if d != nil && d.DeletionTimestamp != nil {
		return
	}
	if d != nil && !metav1.IsControlledBy(d, ice) {
		if !isTrue(ice, v1alpha1.ConditionStalled) {
			fail("Deployment %s is not its, but it is not Stalled", name)
		}
		return
	}
	if isBroken(ice) {
		isScaled := d == nil || *d.Spec.Replicas == *ice.Spec.Replicas || *d.Spec.Replicas == 0 || w.hasLowered
		if readyOf(ice).Reason != v1alpha1.ReasonInvalidSpec || !isScaled {
			fail("the template is broken, and it says %s; it is scaled: %t", readyOf(ice).Reason, isScaled)
		}
		return
	}
	if d == nil && isBroken(w.oldest(w.Store, name)) {
		return // It waits for an older one.
	}
	if d == nil {
		fail("there is no Deployment %s", name)
		return
	}
	container := d.Spec.Template.Spec.Containers[slices.IndexFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == "icecream" })]
	if container.Image != ice.Spec.Image && !w.hasAltered || plain(container.Image) != plain(ice.Spec.Image) {
		fail("the image is %s, not %s", container.Image, ice.Spec.Image)
	}
	var asked corev1.PodTemplateSpec
	if err := json.Unmarshal(ptr.Deref(ice.Spec.Template, runtime.RawExtension{Raw: []byte("{}")}).Raw, &asked); err != nil {
		fail("the template: %v", err)
	}
	for _, name := range []string{"A", "B"} {
		is, want := variableOf(d.Spec.Template, name), variableOf(asked, name)
		if is != want && (is != "theirs" || want != "") {
			fail("the variable %s is %q, not %q", name, is, want)
		}
	}
	if !ptr.Deref(d.Spec.Template.Spec.SecurityContext.RunAsNonRoot, false) || d.Labels["app.kubernetes.io/name"] == "" {
		fail("what somebody has changed in our fields is still there")
	}
	if *d.Spec.Replicas != *ice.Spec.Replicas && (!w.hasLowered || *d.Spec.Replicas > *ice.Spec.Replicas) {
		fail("there are to be %d replicas, not %d", *d.Spec.Replicas, *ice.Spec.Replicas)
	}
	if !w.hasCounts(w.Store, ice) {
		fail("the status says %s, but it has %d, %d ready", countsOf(ice.Status), d.Status.Replicas, d.Status.ReadyReplicas)
	}
	if nodes := w.nodesOf(w.Store, w.Store, ice); !slices.Equal(nodes, ice.Status.Nodes) {
		fail("the nodes are %v, not %v", nodes, ice.Status.Nodes)
	}
	isComplete := w.isComplete(w.Store, ice) && *d.Spec.Replicas >= *ice.Spec.Replicas // A policy can have lowered them.
	if isComplete != isReadyIcecream(ice) {
		fail("complete is %t, but Ready is %t", isComplete, isReadyIcecream(ice))
	}
	isStalled, reason, problems := isTrue(ice, v1alpha1.ConditionStalled), readyOf(ice).Reason, w.problems(w.Store, d)
	hasCause := false
	for of, is := range problems {
		hasCause = hasCause || is && of != v1alpha1.ReasonProgressDeadlineExceeded
	}
	if isLazy := hasCause && reason == v1alpha1.ReasonProgressDeadlineExceeded; !isComplete && (isStalled != hasTimedOut(d) || !problems[reason] || isLazy) {
		fail("it says %s, and Stalled is %t, but its problems are %v", reason, isStalled, problems)
	}
}
