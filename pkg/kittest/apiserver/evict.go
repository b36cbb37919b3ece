package apiserver

import (
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
)

// evict answers a POST to the subresource eviction of a Pod. There are no
// PodDisruptionBudgets: Admit sees the Pod, and refuses the request instead.
func (c *call) evict() (Response, error) {
	eviction, gvk := policyv1.Eviction{}, policyv1.SchemeGroupVersion.WithKind("Eviction")
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(c.Body, &gvk, &eviction); err != nil {
		return Response{}, apierrors.NewBadRequest(err.Error())
	}
	if eviction.Name != c.key.Name {
		return Response{}, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	stored := c.store.Objects[c.key]
	if stored == nil {
		return Response{}, c.notFound()
	}
	obj, err := c.kind.fromStore(stored)
	if err != nil {
		return Response{}, err
	}
	d := &deletion{call: c, options: ptr.Deref(eviction.DeleteOptions, metav1.DeleteOptions{})}
	if len(d.options.DryRun) > 0 {
		return Response{}, notCovered("dry runs of evictions")
	}
	if err := d.checkPreconditions(obj); err != nil {
		return Response{}, err
	}
	if err := c.admit(obj, obj); err != nil {
		return Response{}, err
	}
	if obj, err = d.markEvicted(obj.(*corev1.Pod)); err != nil {
		return Response{}, err
	}
	if _, err := d.delete(obj); err != nil {
		return Response{}, err
	}
	return respond(http.StatusCreated, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusSuccess,
		Code:     http.StatusCreated,
	}), nil
}

// markEvicted stores in the status of a Pod why it is deleted.
func (d *deletion) markEvicted(pod *corev1.Pod) (Object, error) {
	is := corev1.PodCondition{
		Type:               corev1.DisruptionTarget,
		Status:             corev1.ConditionTrue,
		Reason:             "EvictionByEvictionAPI",
		Message:            "Eviction API: evicting",
		LastTransitionTime: d.now,
	}
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == is.Type })
	switch {
	case i < 0:
		pod.Status.Conditions = append(pod.Status.Conditions, is)
	case pod.Status.Conditions[i].Status != is.Status: // it is not evicted for the first time
		pod.Status.Conditions[i] = is
	}
	marked, err := d.put(d.key, pod)
	if err != nil {
		return nil, err
	}
	return d.kind.fromStore(marked)
}
