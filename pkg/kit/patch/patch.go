// Package patch makes requests that change only the object that was observed: each carries its
// UID and, if the object must not have changed, its resource version. It sends none.
package patch

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Merge returns a JSON merge patch that sets annotations, or removes those whose value
// is nil, and merges spec, which may be nil. It carries the UID and the resource version
// of observed as preconditions: the API server answers with a conflict if the object has
// changed since, or is a new one of the same name.
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
