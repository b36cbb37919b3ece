package fidelity

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nicoleh.io/k8s-controller/pkg/kit/explore/apiserver"
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

// sortParts sorts the parts of an error that have no order: the lines about an apply that does
// not follow the schema, the conflicts with several managers, and invalid labels.
func sortParts(status map[string]any) {
	message, _ := status["message"].(string)
	if first, rest, ok := strings.Cut(message, "\n"); ok && strings.HasPrefix(first, "failed to create typed patch object") {
		lines := strings.Split(rest, "\n")
		slices.Sort(lines)
		status["message"] = first + "\n" + strings.Join(lines, "\n")
		return
	}
	causes, _, _ := unstructured.NestedSlice(status, "details", "causes")
	var places []int
	var unordered []any
	for i, cause := range causes {
		if hasNoOrder(cause.(map[string]any)) {
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
	// The message about conflicts is sorted already.
	status["message"] = strings.Replace(message, before, errorText(causes), 1)
}

// hasNoOrder reports whether a cause of an error is one of several that have no order.
func hasNoOrder(cause map[string]any) bool {
	return cause["reason"] == string(metav1.CauseTypeFieldManagerConflict) || cause["field"] == "metadata.labels"
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
