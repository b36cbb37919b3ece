package icecream

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// now is when everything in these tests happens.
var now = time.Date(2026, time.July, 1, 12, 0, 0, 0, time.UTC)

// newIcecream returns an Icecream of three replicas, as edited.
func newIcecream(edits ...func(*v1alpha1.Icecream)) *v1alpha1.Icecream {
	ice := &v1alpha1.Icecream{
		ObjectMeta: metav1.ObjectMeta{Namespace: "parlor", Name: "sundae", UID: "uid-of-sundae", Generation: 1, ResourceVersion: "7"},
		Spec:       v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](3), Image: "registry.example/vanilla:1"},
	}
	for _, edit := range edits {
		edit(ice)
	}
	return ice
}

func scaledTo(n int32) func(*v1alpha1.Icecream) {
	return func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To(n) }
}

func withImage(image string) func(*v1alpha1.Icecream) {
	return func(ice *v1alpha1.Icecream) { ice.Spec.Image = image }
}

func withTemplate(template string) func(*v1alpha1.Icecream) {
	return func(ice *v1alpha1.Icecream) { ice.Spec.Template = &runtime.RawExtension{Raw: []byte(template)} }
}

// parlor is an API server with one Deployment, or none.
type parlor struct {
	testing.TB
	store apiserver.Store
}

var model = apiserver.New(apiserver.Options{}, apiserver.Deployments())

// stored returns the Deployment.
func (p *parlor) stored() *appsv1.Deployment {
	p.Helper()
	for _, obj := range p.store.Objects {
		d := &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.DeepCopy().Object, d); err != nil {
			p.Fatal(err)
		}
		d.Kind, d.APIVersion = "", ""
		return d
	}
	return nil
}

// apply sends what is decided from what the cache keeps of the Deployment, and reports whether that is something.
func (p *parlor) apply(ice *v1alpha1.Icecream) (isDue bool) {
	p.Helper()
	o := Observed{Now: now, Icecream: ice}
	if d := p.stored(); d != nil {
		o.Live = stripped(d)
	}
	plan := Decide(o)
	request := cmp.Or(plan.Apply, plan.Scale)
	if request == nil {
		return false
	}
	options := request.Options(FieldManager)
	var response apiserver.Response
	p.store, response = model.Answer(p.store, now, apiserver.Request{
		Method:      http.MethodPatch,
		Path:        "/apis/apps/v1/namespaces/" + ice.Namespace + "/deployments/" + DeploymentName(ice),
		Query:       url.Values{"fieldManager": {options.FieldManager}, "force": {fmt.Sprint(ptr.Deref(options.Force, false))}},
		ContentType: string(request.Type),
		Body:        request.Body,
	})
	if response.Code >= http.StatusBadRequest {
		p.Fatalf("%s", response.Body)
	}
	return true
}

// made returns the Icecream's Deployment as the cache shows it when it is rolled out and somebody has edited it.
func made(t testing.TB, ice *v1alpha1.Icecream, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	t.Helper()
	p := &parlor{TB: t}
	p.apply(ice)
	d := p.stored()
	for _, edit := range append([]func(*appsv1.Deployment){rolledOut}, edits...) {
		edit(d)
	}
	var err error
	if p.store, err = model.Put(p.store, now, d); err != nil {
		t.Fatal(err)
	}
	return stripped(p.stored())
}

func beingDeleted[T metav1.Object](obj T) { obj.SetDeletionTimestamp(ptr.To(metav1.NewTime(now))) }

func orphaned(d *appsv1.Deployment) { d.OwnerReferences = nil }

// scaled is what people do with kubectl scale.
func scaled(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](2) }

// ours returns our container of a Deployment.
func ours(d *appsv1.Deployment) *corev1.Container {
	containers := d.Spec.Template.Spec.Containers
	return &containers[slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == containerName })]
}

// rolledOut gives a Deployment the status that it has when its rollout is over.
func rolledOut(d *appsv1.Deployment) {
	n := replicas(d)
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
}

// rollingOut gives a Deployment the status that it has when one Pod is not available yet.
func rollingOut(d *appsv1.Deployment) {
	rolledOut(d)
	d.Status.ReadyReplicas--
	d.Status.AvailableReplicas--
}

// says gives a Deployment a condition.
func says(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		condition := appsv1.DeploymentCondition{Type: kind, Status: status, Reason: reason, Message: message}
		d.Status.Conditions = append(d.Status.Conditions, condition)
	}
}

func forbidden(why string) error {
	return apierrors.NewForbidden(appsv1.Resource("deployments"), "sundae", errors.New(why))
}

func invalid() error {
	required := field.Required(field.NewPath("spec"), "")
	return apierrors.NewInvalid(appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind(), "sundae", field.ErrorList{required})
}

// seeing returns what is observed of an Icecream, the Deployment of its name, and the Pods of that, all ready.
func seeing(ice *v1alpha1.Icecream, live *appsv1.Deployment) Observed {
	o := Observed{Now: now, Icecream: ice, Live: live}
	if live != nil {
		for i := range live.Status.Replicas {
			o.Pods = append(o.Pods, Pod{
				Name: fmt.Sprintf("%s-%d", live.Name, i), Node: fmt.Sprintf("node-%05d.example", i), Ready: true,
				ReplicaSet: live.Name + "-7c8b", TemplateHash: "7c8b", Created: now.Add(-time.Hour),
			})
		}
	}
	return o
}

// reported says what the status reports if nothing is written now, and after how long it is to be looked at again.
func reported(o Observed) (verdict string, recheckAfter time.Duration) {
	s, recheckAfter := Status(o, Decide(o))
	return verdictOf(s) + ": " + ReadyOf(s).Message, recheckAfter
}

// verdictOf returns what the three conditions say together: the one that is True and the reason, or what is wrong.
func verdictOf(s v1alpha1.IcecreamStatus) string {
	var verdict string
	for _, name := range kstatus.States() {
		c := meta.FindStatusCondition(s.Conditions, string(name))
		if c == nil || c.ObservedGeneration != s.ObservedGeneration || c.Reason == "" || c.LastTransitionTime.IsZero() {
			return fmt.Sprintf("%s is %+v", name, c)
		}
		if c.Status == metav1.ConditionTrue {
			verdict += string(name) + ": " + c.Reason
		}
	}
	return verdict
}
