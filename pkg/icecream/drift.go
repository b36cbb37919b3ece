package icecream

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Difference is a field of ours that is not as it should be.
type Difference struct {
	Path fieldpath.Path `json:"-"`
	// Field is the path in words: spec.template.spec.containers[name="icecream"].image.
	Field string
	Live  any // nil when the field is missing
	Want  any // nil when the field should not be there
}

// driftOf is what applying want, for a spec with these resources, would change in
// live: fields that have another value there or are missing, sorted, and fields of
// ours that the spec no longer asks for. claim is what the managedFields have to be
// before an apply can drop these; see leftovers.
func driftOf(live *appsv1.Deployment, want *appsv1ac.DeploymentApplyConfiguration, resources v1alpha1.IcecreamResources) (drift []Difference, claim []metav1.ManagedFieldsEntry) {
	// Both are plain structs of known types, which always convert.
	is, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	wants, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	// Typed objects out of a cache carry neither.
	delete(wants, "apiVersion")
	delete(wants, "kind")
	drift = compare(is, wants)

	left, claim := leftovers(resources, live)
	for path := range left.All() {
		drift = append(drift, Difference{Path: path.Copy(), Live: "anything"})
	}
	for i := range drift {
		drift[i].Field = strings.TrimPrefix(drift[i].Path.String(), ".")
	}
	return drift, claim
}

// compare is where live is not as want, which it may exceed. Of a list of objects,
// each has to be in live too, whatever elements of others stand before, between or
// behind; lists of scalars are compared as a whole.
func compare(live, want any) (found []Difference) {
	switch want := want.(type) {
	case map[string]any:
		live, ok := live.(map[string]any)
		if !ok {
			return []Difference{{Want: want}}
		}
		for name, value := range want {
			if different := compare(live[name], value); len(different) > 0 {
				field := name
				found = append(found, below(fieldpath.PathElement{FieldName: &field}, different)...)
			}
		}
		slices.SortFunc(found, func(a, b Difference) int { return a.Path.Compare(b.Path) })
		return found
	case []any:
		if live, ok := live.([]any); ok && len(want) > 0 && isObject(want[0]) {
			for i, element := range want {
				if different := compareElement(live, element.(map[string]any)); len(different) > 0 {
					found = append(found, below(keyOf(element.(map[string]any), i), different)...)
				}
			}
			return found
		}
	}
	if equality.Semantic.DeepEqual(live, want) {
		return nil
	}
	return []Difference{{Live: live, Want: want}}
}

func isObject(value any) bool {
	_, ok := value.(map[string]any)
	return ok
}

// compareElement is where the element of live that corresponds to want is not as it
// should be: of several, the first, unless another is as it should be.
func compareElement(live []any, want map[string]any) []Difference {
	var found []Difference
	for _, element := range live {
		different := compare(element, want)
		if len(different) == 0 {
			return nil
		}
		object, _ := element.(map[string]any)
		if key := keyField(want); found == nil && key != "" && object[key] == want[key] {
			found = different
		}
	}
	if found == nil {
		found = []Difference{{Want: want}}
	}
	return found
}

// keyField is the field that tells an element of a list from the others; empty if
// none does.
func keyField(element map[string]any) string {
	for _, name := range []string{"uid", "name"} {
		if _, ok := element[name].(string); ok {
			return name
		}
	}
	return ""
}

// keyOf is where an element is in its list, by its key if it has one.
func keyOf(element map[string]any, at int) fieldpath.PathElement {
	if key := keyField(element); key != "" {
		return fieldpath.PathElement{Key: fieldpath.KeyByFields(key, element[key])}
	}
	return fieldpath.PathElement{Index: &at}
}

// below are differences in something that is there.
func below(there fieldpath.PathElement, found []Difference) []Difference {
	for i := range found {
		found[i].Path = append(fieldpath.Path{there}, found[i].Path...)
	}
	return found
}

// altered says in what the API server has stored a Deployment otherwise than it was
// requested to.
func altered(d *appsv1.Deployment, drift []Difference) string {
	var fields []string
	for _, f := range drift {
		fields = append(fields, fmt.Sprintf("%s is %s instead of %s", f.Field, inWords(f.Live), inWords(f.Want)))
	}
	return fmt.Sprintf("The API server stored Deployment %q otherwise than requested, by an admission policy or webhook: %s", d.Name, strings.Join(fields, "; "))
}

// maxValue is how many characters of a value are shown in a sentence.
const maxValue = 120

func inWords(value any) string {
	if value == nil {
		return "nothing"
	}
	raw, _ := json.Marshal(value)
	return clip(string(raw), maxValue)
}

// contest says who has changed what the decision is to set right in live.
func (d Decision) contest(live *appsv1.Deployment) string {
	if live == nil {
		return fmt.Sprintf("Deployment %q keeps being deleted; the controller waits longer each time before it creates it again", *d.Apply.Name)
	}
	var fields []string
	for _, f := range d.Drift {
		fields = append(fields, f.Field)
	}
	what := "Deployment " + live.Name
	if len(fields) > 0 {
		what = fmt.Sprintf("%s of Deployment %q", strings.Join(fields, ", "), live.Name)
	}
	return clip(fmt.Sprintf("%s keeps changing %s; the controller waits longer each time before it repairs that", strings.Join(managersOf(live, d.Drift), ", "), what), maxMessage)
}

// managersOf are the names of the others that own one of these fields, by the
// Deployment's managedFields.
func managersOf(live *appsv1.Deployment, drift []Difference) []string {
	var names []string
	for _, entry := range live.ManagedFields {
		if entry.Manager == FieldManager || entry.Subresource == "status" {
			continue
		}
		fields := fieldsOf(entry)
		if slices.ContainsFunc(drift, func(f Difference) bool { return fields.Has(f.Path) }) {
			names = append(names, fmt.Sprintf("%q", entry.Manager))
		}
	}
	if len(names) == 0 {
		return []string{"Somebody"}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
