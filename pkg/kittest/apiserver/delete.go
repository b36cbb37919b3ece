package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
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
	if err := d.readOptions(); err != nil {
		return Response{}, err
	}
	if err := invalidOptions("DeleteOptions", metav1validation.ValidateDeleteOptions(&d.options)); err != nil {
		return Response{}, err
	}
	stored := c.store.Objects[c.key]
	if stored == nil {
		return Response{}, c.notFound()
	}
	obj, err := c.kind.fromStore(stored)
	if err != nil {
		return Response{}, err
	}
	if c.kind.Kind.Kind == "Namespace" {
		return d.deleteNamespace(obj)
	}
	return d.delete(obj)
}

// readOptions reads the options from the body, or else from the query.
func (d *deletion) readOptions() error {
	o := &d.options
	if policy := d.Query.Get("propagationPolicy"); len(d.Body) == 0 && policy != "" {
		o.PropagationPolicy = ptr.To(metav1.DeletionPropagation(policy))
	}
	if seconds := d.Query.Get("gracePeriodSeconds"); len(d.Body) == 0 && seconds != "" {
		if err := json.Unmarshal([]byte(seconds), &o.GracePeriodSeconds); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
	}
	if len(d.Body) == 0 {
		return nil
	}
	var err error
	if protobufs := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme); isProtobuf(protobufs, d.Body) {
		unknown := &runtime.Unknown{}
		if _, _, err = protobufs.Decode(d.Body, nil, unknown); err == nil {
			err = o.Unmarshal(unknown.Raw)
		}
	} else {
		err = json.Unmarshal(d.Body, o)
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if len(o.DryRun) > 0 || o.OrphanDependents != nil { //nolint:staticcheck // Old clients may still send it.
		return notCovered("dry runs and orphanDependents")
	}
	return nil
}

func isProtobuf(serializer *protobuf.Serializer, body []byte) bool {
	ok, _, err := serializer.RecognizesData(body)
	return ok && err == nil
}

// delete deletes an object of which obj is a copy, or marks it as being deleted.
func (d *deletion) delete(obj object) (Response, error) {
	if err := d.checkPreconditions(obj); err != nil {
		return Response{}, err
	}
	isGraceful, isPending := d.beforeDelete(obj)
	if isPending {
		return d.deleted(obj)
	}
	finalizers, hasChanged := d.finalizers(obj)
	isUpdated := isGraceful || hasChanged || len(finalizers) > 0
	if isUpdated {
		obj.SetFinalizers(finalizers)
		if !isGraceful && len(finalizers) > 0 {
			d.mark(obj)
		}
	}
	if isGraceful || len(finalizers) > 0 {
		changed, err := d.put(d.key, obj)
		if err != nil {
			return Response{}, err
		}
		if len(finalizers) > 0 || *d.options.GracePeriodSeconds > 0 {
			return respond(http.StatusOK, changed), nil
		}
	} else if p := d.options.Preconditions; isUpdated && p != nil && p.ResourceVersion != nil {
		// The API server meant to remove the last finalizer first, decided to delete at once
		// instead, and now compares the version with that of no object.
		return Response{}, d.conflict(d.failedPrecondition("ResourceVersion", "", obj.GetResourceVersion()))
	}
	return d.remove()
}

// checkPreconditions returns an error if the object is not the one that was to be deleted.
// It names the kind rather than the resource.
func (d *deletion) checkPreconditions(obj object) error {
	p := d.options.Preconditions
	if p == nil {
		return nil
	}
	kind := schema.GroupResource{Group: d.key.Resource.Group, Resource: d.kind.Kind.Kind}
	if p.UID != nil && *p.UID != obj.GetUID() {
		return apierrors.NewConflict(kind, d.key.Name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, obj.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
		return apierrors.NewConflict(kind, d.key.Name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, obj.GetResourceVersion()))
	}
	return nil
}

// beforeDelete starts or shortens a graceful deletion. isPending means that one has started
// and is not to be shortened.
func (d *deletion) beforeDelete(obj object) (isGraceful, isPending bool) {
	if seconds := d.options.GracePeriodSeconds; seconds != nil && *seconds < 0 {
		d.options.GracePeriodSeconds = ptr.To[int64](1)
	}
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
func (d *deletion) shorten(obj object) (isGraceful, isPending bool) {
	current := ptr.Deref(obj.GetDeletionGracePeriodSeconds(), 0)
	if current == 0 {
		return false, false
	}
	if d.options.GracePeriodSeconds == nil {
		return false, true
	}
	seconds := *d.options.GracePeriodSeconds
	if seconds >= current {
		return false, true
	}
	end := metav1.NewTime(obj.GetDeletionTimestamp().Add(time.Duration(seconds-current) * time.Second))
	if end.Before(&d.now) {
		end = d.now
		if seconds != 0 {
			seconds = 1
		}
	}
	obj.SetDeletionTimestamp(&end)
	obj.SetDeletionGracePeriodSeconds(&seconds)
	return true, false
}

// finalizers returns the finalizers that the object should have according to the propagation
// policy, and whether it has others.
func (d *deletion) finalizers(obj object) (finalizers []string, hasChanged bool) {
	for _, finalizer := range obj.GetFinalizers() {
		if finalizer != metav1.FinalizerOrphanDependents && finalizer != metav1.FinalizerDeleteDependents {
			finalizers = append(finalizers, finalizer)
		}
	}
	if policy := d.policy(obj); policy != "" {
		finalizers = append(finalizers, policy)
	}
	was, is := slices.Sorted(slices.Values(obj.GetFinalizers())), slices.Sorted(slices.Values(finalizers))
	if slices.Equal(slices.Compact(was), slices.Compact(is)) {
		return obj.GetFinalizers(), false
	}
	return finalizers, true
}

// policy returns the finalizer for what is to become of the dependents, if there is one.
func (d *deletion) policy(obj object) string {
	if d.options.PropagationPolicy != nil {
		switch *d.options.PropagationPolicy {
		case metav1.DeletePropagationOrphan:
			return metav1.FinalizerOrphanDependents
		case metav1.DeletePropagationForeground:
			return metav1.FinalizerDeleteDependents
		default:
			return ""
		}
	}
	for _, finalizer := range obj.GetFinalizers() {
		if finalizer == metav1.FinalizerOrphanDependents || finalizer == metav1.FinalizerDeleteDependents {
			return finalizer
		}
	}
	return ""
}

// mark marks an object that waits only for its finalizers.
func (d *deletion) mark(obj object) {
	if obj.GetDeletionTimestamp() == nil && obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	if at := obj.GetDeletionTimestamp(); at == nil || at.After(d.now.Time) {
		obj.SetDeletionTimestamp(d.now.DeepCopy())
	}
	obj.SetDeletionGracePeriodSeconds(ptr.To[int64](0))
}

// remove deletes the object from the store.
func (d *deletion) remove() (Response, error) {
	store, last := d.without(d.store, d.key)
	d.store = store
	obj, err := d.kind.fromStore(last)
	if err != nil {
		return Response{}, err
	}
	return d.deleted(obj)
}

// deleted returns the response to a deletion that needs nothing else from the API server.
func (d *deletion) deleted(obj object) (Response, error) {
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
