package source

import (
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	applyconfigurations "k8s.io/client-go/applyconfigurations"

	"nicoleh.io/k8s-controller/pkg/icecream"
)

// object is an object of any kind that the source serves.
type object interface {
	runtime.Object
	metav1.Object
}

// fieldManagerOf returns what tracks the owners of fields in the API server, for a kind and
// a subresource, which is empty for the object itself.
func fieldManagerOf(kind schema.GroupVersionKind, subresource string) (*managedfields.FieldManager, error) {
	converter := builtInTypes()
	if !isBuiltIn(kind) {
		// Without a schema, a list is one field.
		converter = managedfields.NewDeducedTypeConverter()
	}
	return managedfields.NewDefaultFieldManager(converter, all, noDefaults{}, all, kind, kind.GroupVersion(), subresource, nil)
}

// builtInTypes returns a converter for all types of Kubernetes, which is slow to make.
var builtInTypes = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(all) })

// noDefaults leaves objects as they are: samples have all defaults.
type noDefaults struct{}

// Default implements runtime.ObjectDefaulter.
func (noDefaults) Default(runtime.Object) {}

// manageFields adds the managedFields that the API server would have recorded for writes of
// each object and then its status.
func (s *samples) manageFields() error {
	const cluster, kubelet = "kube-controller-manager", "kubelet"
	type written struct {
		object
		spec, status string
	}
	all := []written{
		{s.icecream, "kubectl-create", icecream.FieldManager},
		{s.deployment, icecream.FieldManager, cluster},
		{s.otherDeployment, "kubectl-create", cluster},
		{s.otherPod, cluster, kubelet},
	}
	for _, pod := range s.pods {
		all = append(all, written{pod, cluster, kubelet})
	}
	for _, w := range all {
		if err := manageFields(w.object, w.spec, w.status); err != nil {
			return fmt.Errorf("recording who wrote %s: %w", w.GetName(), err)
		}
	}
	return nil
}

func manageFields(obj object, spec, status string) error {
	kind := obj.GetObjectKind().GroupVersionKind()
	created := obj.DeepCopyObject().(object)
	field(created, "Status").SetZero()
	empty, err := all.New(kind)
	if err != nil {
		return err
	}
	empty.GetObjectKind().SetGroupVersionKind(kind)
	for _, write := range []struct {
		from, to             runtime.Object
		manager, subresource string
	}{{empty, created, spec, ""}, {created, obj, status, "status"}} {
		manager, err := fieldManagerOf(kind, write.subresource)
		if err != nil {
			return err
		}
		managed, err := manager.Update(write.from, write.to, write.manager)
		if err != nil {
			return err
		}
		entries := managed.(object).GetManagedFields()
		for i := range entries {
			entries[i].Time = &since
		}
		created.SetManagedFields(entries)
		obj.SetManagedFields(entries)
	}
	return nil
}

// field returns a field of an object, such as its Status; the zero Value if it has none.
func field(obj runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName(name)
}
