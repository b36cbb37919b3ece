package fidelity

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// sortParts sorts the parts of an error that have no order: the lines about an apply that does
// not follow the schema, the conflicts with several managers, and invalid labels.
func sortParts(status map[string]any) {
	if message, _ := status["message"].(string); strings.HasPrefix(message, "failed to create typed patch object") {
		status["message"] = sortLines(message)
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
	status["message"] = strings.Replace(status["message"].(string), before, errorText(causes), 1)
}

// sortLines sorts the lines about an apply that does not follow the schema. It leaves out those
// that may be missing: the first field that is not in the schema ends the look at its object,
// and fields come in a random order (visitMapItems in typed/validate.go of
// structured-merge-diff).
func sortLines(message string) string {
	const undeclared, separator = ": field not declared in schema", "\n  "
	first, rest, _ := strings.Cut(message, "errors:"+separator)
	lines := strings.Split(rest, separator)
	for _, line := range slices.Clone(lines) {
		path, isUndeclared := strings.CutSuffix(line, undeclared)
		if !isUndeclared {
			continue
		}
		object := path[:strings.LastIndex(path, ".")+1]
		lines = slices.DeleteFunc(lines, func(other string) bool { return other != line && strings.HasPrefix(other, object) })
	}
	slices.Sort(lines)
	if len(lines) == 1 { // as the only one is written
		return first + lines[0]
	}
	return first + "errors:" + separator + strings.Join(lines, separator)
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

func TestSortLines(t *testing.T) {
	const prefix = "failed to create typed patch object (/b; /v1, Kind=Secret): "
	for name, test := range map[string]struct{ message, want string }{
		"one":                         {".a: x", ".a: x"},
		"several":                     {"errors:\n  .b: y\n  .a: x", "errors:\n  .a: x\n  .b: y"},
		"one not in the schema":       {".spec: field not declared in schema", ".spec: field not declared in schema"},
		"what was found before that":  {"errors:\n  .metadata.a: x\n  .spec: field not declared in schema", ".spec: field not declared in schema"},
		"in the same part of it":      {"errors:\n  .spec.a.b: x\n  .spec.c: field not declared in schema", ".spec.c: field not declared in schema"},
		"in another part of the same": {"errors:\n  .spec.c: field not declared in schema\n  .metadata.a: x", "errors:\n  .metadata.a: x\n  .spec.c: field not declared in schema"},
	} {
		if got := sortLines(prefix + test.message); got != prefix+test.want {
			t.Errorf("%s: got %q, want %q", name, got, prefix+test.want)
		}
	}
}
