package fidelity

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// This file has what the API server leaves to chance, because it ranges over a map: the order
// of some lists.

// adoptFinalizers has the model continue with the API server's order of a Namespace's
// finalizers, if a deletion has left the same ones in both. The API server chooses the order
// at random (Delete in pkg/registry/core/namespace/storage of Kubernetes). What it has chosen
// is stored, so that the order matters to later requests.
func (s *sequence) adoptFinalizers(r apiserver.Request, after apiserver.Store, want, is map[string]any) {
	_, key, _, _ := s.server.Parse(r)
	deleted := after.Objects[key]
	if r.Method != http.MethodDelete || key.Resource != namespaces.GroupResource() || deleted == nil || deleted == s.store.Objects[key] {
		return
	}
	chosen, _, _ := unstructured.NestedStringSlice(want, "metadata", "finalizers")
	if !slices.Equal(slices.Sorted(slices.Values(chosen)), slices.Sorted(slices.Values(deleted.GetFinalizers()))) {
		return
	}
	for _, finalized := range []*unstructured.Unstructured{deleted, {Object: is}} {
		finalized.SetFinalizers(chosen)
	}
}

// sortParts sorts the causes of an error about labels, which have no order.
func sortParts(status map[string]any) {
	causes, _, _ := unstructured.NestedSlice(status, "details", "causes")
	var places []int
	var unordered []any
	for i, cause := range causes {
		if cause.(map[string]any)["field"] == "metadata.labels" {
			places, unordered = append(places, i), append(unordered, cause)
		}
	}
	if len(unordered) < 2 {
		return
	}
	before := errorText(causes)
	slices.SortFunc(unordered, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for i, place := range places {
		causes[place] = unordered[i]
	}
	status["details"].(map[string]any)["causes"] = causes
	status["message"] = strings.Replace(status["message"].(string), before, errorText(causes), 1)
}

// errorText returns the part of a message that lists the causes of an error about an invalid
// object, each once.
func errorText(causes []any) string {
	var texts []string
	for _, cause := range causes {
		cause := cause.(map[string]any)
		if text := fmt.Sprintf("%s: %s", cause["field"], cause["message"]); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ", ")
}
