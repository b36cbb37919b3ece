package apiserver

import (
	"fmt"
	"maps"
	"reflect"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"
)

// These return what computes the managed fields of a kind. It is expensive to make.
var (
	deploymentFields  = fieldsOf("Deployment", func(obj runtime.Object) { setDeploymentDefaults(obj.(*appsv1.Deployment)) })
	statefulSetFields = fieldsOf("StatefulSet", func(obj runtime.Object) { setStatefulSetDefaults(obj.(*appsv1.StatefulSet)) })
)

func fieldsOf(name string, setDefaults defaulter) func() *managedfields.FieldManager {
	return sync.OnceValue(func() *managedfields.FieldManager {
		kind := appsv1.SchemeGroupVersion.WithKind(name)
		status := map[fieldpath.APIVersion]*fieldpath.Set{
			fieldpath.APIVersion(kind.GroupVersion().String()): fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
		}
		fields, err := managedfields.NewDefaultFieldManager(
			applyconfigurations.NewTypeConverter(scheme.Scheme), runtime.UnsafeObjectConvertor(scheme.Scheme), setDefaults, scheme.Scheme,
			kind, kind.GroupVersion(), "", fieldpath.NewExcludeFilterSetMap(status),
		)
		if err != nil {
			panic(err) // Nothing in it depends on anything.
		}
		return fields
	})
}

// defaulter is a runtime.ObjectDefaulter.
type defaulter func(runtime.Object)

func (d defaulter) Default(obj runtime.Object) { d(obj) }

// track makes the sender of a request, by any name, a manager of what obj changes of the old object.
// As in the API server, this comes before webhooks, whose changes nobody manages.
func (c *call) track(obj, old Object) {
	if c.kind.fields != nil {
		c.kind.fields().UpdateNoErrors(old, obj, c.Query.Get("fieldManager"))
	}
}

// trackPut makes "others" a manager of what an actor changes other than the status. old is nil for a
// new object.
func (k *Kind) trackPut(obj, old *unstructured.Unstructured) {
	switch {
	case k.fields == nil:
	case old == nil:
		k.fields().UpdateNoErrors(k.empty(), obj, "others")
	case !reflect.DeepEqual(obj.Object["spec"], old.Object["spec"]) || !reflect.DeepEqual(obj.Object["metadata"], old.Object["metadata"]):
		k.fields().UpdateNoErrors(old, obj, "others")
	}
}

// apply answers a PATCH with all that its sender wants to manage, which creates an object that is
// not there.
func (c *call) apply() (Response, error) {
	var options metav1.PatchOptions
	if err := scheme.ParameterCodec.DecodeParameters(c.Query, schema.GroupVersion{Version: "v1"}, &options); err != nil {
		return Response{}, apierrors.NewBadRequest(err.Error())
	}
	if errs := metav1validation.ValidatePatchOptions(&options, types.ApplyYAMLPatchType); len(errs) > 0 {
		return Response{}, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "PatchOptions"}, "", errs)
	}
	sent := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(c.Body, &sent.Object); err != nil {
		return Response{}, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	applied := func(old Object) (Object, error) {
		obj, err := c.kind.fields().Apply(old, sent, options.FieldManager, options.Force != nil && *options.Force)
		if err != nil {
			return nil, err
		}
		if uid := obj.(Object).GetUID(); uid != "" && old.GetUID() == "" {
			return nil, c.conflict(fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
		}
		return obj.(Object), c.checkPlace(obj.(Object))
	}
	if c.store.Objects[c.key] != nil {
		return c.save("", applied)
	}
	obj, err := applied(c.kind.empty())
	if err != nil {
		return Response{}, err
	}
	obj.SetResourceVersion("")
	return c.add(obj)
}

// Creates reports whether a request is for a new object: a POST, or an apply of what is not there,
// unless it says the UID of an object that there was.
func (s *Server) Creates(store Store, r Request) bool {
	t, err := s.parse(r)
	if err != nil || t.verb != "patch" || patchType(r) != types.ApplyYAMLPatchType {
		return err == nil && t.verb == "create" && t.subresource == ""
	}
	var sent metav1.PartialObjectMetadata
	return store.Objects[t.key] == nil && yaml.Unmarshal(r.Body, &sent) == nil && sent.UID == ""
}

// withoutTimes returns an object without the times in its managed fields. A write that would change
// nothing else leaves the object as it is.
func withoutTimes(content map[string]any) map[string]any {
	metadata, _ := content["metadata"].(map[string]any)
	entries, ok := metadata["managedFields"].([]any)
	if !ok {
		return content
	}
	content, metadata = maps.Clone(content), maps.Clone(metadata)
	timeless := make([]any, len(entries))
	for i, entry := range entries {
		clone := maps.Clone(entry.(map[string]any))
		delete(clone, "time")
		timeless[i] = clone
	}
	content["metadata"], metadata["managedFields"] = metadata, timeless
	return content
}
