package apiserver

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
)

// deletion is a DELETE that is being answered.
type deletion struct {
	*call
	options metav1.DeleteOptions
}

func (c *call) delete() (Response, error) {
	d := &deletion{call: c}
	if len(d.Body) > 0 {
		gvk := corev1.SchemeGroupVersion.WithKind("DeleteOptions")
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(d.Body, &gvk, &d.options); err != nil {
			return Response{}, apierrors.NewBadRequest(err.Error())
		}
	}
	if len(d.options.DryRun) > 0 {
		return Response{}, notCovered("dry runs")
	}
	stored := c.store.Objects[c.key]
	if stored == nil {
		return Response{}, c.notFound()
	}
	obj, err := c.kind.fromStore(stored)
	if err != nil {
		return Response{}, err
	}
	if err := d.checkPreconditions(obj); err != nil {
		return Response{}, err
	}
	if c.kind.isNamespace {
		return d.terminate(obj.(*corev1.Namespace))
	}
	return d.delete(obj)
}

// checkPreconditions returns an error if the object is not the one that was to be deleted.
func (d *deletion) checkPreconditions(obj Object) error {
	p := ptr.Deref(d.options.Preconditions, metav1.Preconditions{})
	if p.UID != nil && *p.UID != obj.GetUID() {
		return d.conflict(fmt.Errorf("the precondition has the UID %s, the object %s", *p.UID, obj.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
		return d.conflict(fmt.Errorf("the precondition has the resource version %s, the object %s", *p.ResourceVersion, obj.GetResourceVersion()))
	}
	return nil
}

// terminate marks a namespace, which then waits until it is empty.
func (d *deletion) terminate(namespace *corev1.Namespace) (Response, error) {
	if namespace.DeletionTimestamp == nil {
		namespace.DeletionTimestamp, namespace.Status.Phase = d.now.DeepCopy(), corev1.NamespaceTerminating
	}
	return d.change(namespace)
}

// change stores an object that is being deleted, and responds with it.
func (d *deletion) change(obj Object) (Response, error) {
	changed, err := d.put(d.key, obj)
	if err != nil {
		return Response{}, err
	}
	return respond(http.StatusOK, changed), nil
}

// delete deletes an object, or marks it as being deleted. It may change obj, which must be a copy.
func (d *deletion) delete(obj Object) (Response, error) {
	isGraceful, isPending := d.beforeDelete(obj)
	if isPending {
		return d.deleted(obj)
	}
	finalizers := d.finalizers(obj)
	obj.SetFinalizers(finalizers)
	if !isGraceful && len(finalizers) > 0 {
		d.mark(obj)
	}
	if len(finalizers) > 0 || isGraceful && *d.options.GracePeriodSeconds > 0 {
		return d.change(obj)
	}
	if isGraceful {
		if _, err := d.change(obj); err != nil {
			return Response{}, err
		}
	}
	store, last := d.without(d.store, d.key)
	d.store = store
	obj, err := d.kind.fromStore(last)
	if err != nil {
		return Response{}, err
	}
	return d.deleted(obj)
}

// beforeDelete starts or shortens a graceful deletion. isPending means that one has started
// and is not to be shortened.
func (d *deletion) beforeDelete(obj Object) (isGraceful, isPending bool) {
	if d.kind.gracePeriod == nil {
		return false, false
	}
	if obj.GetDeletionTimestamp() != nil {
		return d.shorten(obj)
	}
	seconds := d.kind.gracePeriod(obj, d.options.GracePeriodSeconds)
	d.options.GracePeriodSeconds = &seconds
	obj.SetDeletionTimestamp(ptr.To(metav1.NewTime(d.now.Add(time.Duration(seconds) * time.Second))))
	obj.SetDeletionGracePeriodSeconds(&seconds)
	if obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	return true, false
}

// shorten shortens the grace period of an object that is being deleted, if that was asked for.
func (d *deletion) shorten(obj Object) (isGraceful, isPending bool) {
	current := ptr.Deref(obj.GetDeletionGracePeriodSeconds(), 0)
	if current == 0 {
		return false, false
	}
	if d.options.GracePeriodSeconds == nil || *d.options.GracePeriodSeconds >= current {
		return false, true
	}
	seconds := *d.options.GracePeriodSeconds
	end := metav1.NewTime(obj.GetDeletionTimestamp().Add(time.Duration(seconds-current) * time.Second))
	if end.Before(&d.now) {
		end, seconds = d.now, min(seconds, 1)
	}
	obj.SetDeletionTimestamp(&end)
	obj.SetDeletionGracePeriodSeconds(&seconds)
	return true, false
}

// finalizers returns the finalizers that the object should have according to the propagation
// policy.
func (d *deletion) finalizers(obj Object) []string {
	isPolicy := func(finalizer string) bool {
		return finalizer == metav1.FinalizerOrphanDependents || finalizer == metav1.FinalizerDeleteDependents
	}
	if d.options.PropagationPolicy == nil {
		return obj.GetFinalizers()
	}
	finalizers := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), isPolicy)
	switch *d.options.PropagationPolicy {
	case metav1.DeletePropagationOrphan:
		finalizers = append(finalizers, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		finalizers = append(finalizers, metav1.FinalizerDeleteDependents)
	case metav1.DeletePropagationBackground:
	}
	if sets.New(finalizers...).Equal(sets.New(obj.GetFinalizers()...)) {
		return obj.GetFinalizers() // in their order
	}
	return finalizers
}

// mark marks an object that waits only for its finalizers.
func (d *deletion) mark(obj Object) {
	if obj.GetDeletionTimestamp() == nil && obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	if at := obj.GetDeletionTimestamp(); at == nil || at.After(d.now.Time) {
		obj.SetDeletionTimestamp(d.now.DeepCopy())
	}
	obj.SetDeletionGracePeriodSeconds(ptr.To[int64](0))
}

// deleted returns the response to a deletion that needs nothing else from the API server.
func (d *deletion) deleted(obj Object) (Response, error) {
	if d.kind.returnsDeleted {
		last, err := d.kind.toStore(obj)
		if err != nil {
			return Response{}, err
		}
		return respond(http.StatusOK, last), nil
	}
	return respond(http.StatusOK, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusSuccess,
		Details:  &metav1.StatusDetails{Name: obj.GetName(), Group: d.key.Resource.Group, Kind: d.key.Resource.Resource, UID: obj.GetUID()},
	}), nil
}
