// Package patch makes patches that apply only to the object that was observed: each carries its
// UID, and where it must not have changed, its resource version. It sends no requests.
package patch

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Merge returns a JSON merge patch that sets annotations, or removes those whose value
// is nil, and merges spec, which may be nil. It carries the UID and the resource version
// of observed as preconditions: the API server answers with a conflict if the object has
// changed since, or is another one of the same name.
func Merge(observed metav1.Object, annotations map[string]*string, spec any) ([]byte, error) {
	metadata := map[string]any{"uid": observed.GetUID(), "resourceVersion": observed.GetResourceVersion()}
	if annotations != nil { // null would remove all annotations
		metadata["annotations"] = annotations
	}
	body := map[string]any{"metadata": metadata}
	if spec != nil {
		body["spec"] = spec
	}
	return json.Marshal(body)
}

// object is a pointer to an object of a built-in type.
type object[O any, T any] interface {
	*O
	metav1.Object
	DeepCopy() T
}

// IfUID returns a strategic merge patch from one state of an object of a built-in type to another,
// with the UID of the first as a precondition (see response.IsStale). So others' fields and other
// elements of lists stay as they are. Both arguments are left as they are.
func IfUID[O any, T object[O, T]](live, want T) ([]byte, error) {
	from := live.DeepCopy()
	from.SetUID("")
	return twoWay[O](from, want)
}

// IfUnchanged is [IfUID] with the resource version as a precondition, too.
func IfUnchanged[O any, T object[O, T]](live, want T) ([]byte, error) {
	from := live.DeepCopy()
	from.SetUID("")
	from.SetResourceVersion("")
	return twoWay[O](from, want)
}

func twoWay[O any, T object[O, T]](from, want T) ([]byte, error) {
	before, err := json.Marshal(from)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(want)
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, from)
}
