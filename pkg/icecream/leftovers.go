package icecream

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// leftovers are the fields that live still has, that this controller wrote, and
// that the spec, which asks for these resources, no longer asks for.
//
// Server-side apply drops what its manager applied before and no longer does.
// But a Deployment begins with a POST, and what that wrote belongs to an Update,
// which an Apply of the same manager leaves alone. claim is then what the
// managedFields have to be before the apply: as they are, with the leftovers
// moved from our Update to our Apply. It is nil when there is nothing to move.
//
// The container's resources are the only fields that we own for some specs and
// not for others, so nothing else can be left over.
func leftovers(asked v1alpha1.IcecreamResources, live *appsv1.Deployment) (left *fieldpath.Set, claim []metav1.ManagedFieldsEntry) {
	left = fieldpath.NewSet()
	if !hasMoreResources(live, asked) {
		return left, nil
	}
	toMove := fieldpath.NewSet()
	for _, entry := range live.ManagedFields {
		if !isOurs(entry) {
			continue
		}
		stale := notAsked(fieldsOf(entry), pathsOf(asked))
		left = left.Union(stale)
		if entry.Operation == metav1.ManagedFieldsOperationUpdate {
			toMove = toMove.Union(stale)
		}
	}
	if toMove.Empty() {
		return left, nil
	}
	return left, moveToApply(live.ManagedFields, toMove)
}

// hasMoreResources says whether live's container has resources beyond those
// asked for, whoever put them there. It spares most syncs the managedFields.
func hasMoreResources(live *appsv1.Deployment, asked v1alpha1.IcecreamResources) bool {
	for _, c := range live.Spec.Template.Spec.Containers {
		if c.Name == containerName {
			return hasMore(c.Resources.Limits, asked.Limits) ||
				hasMore(c.Resources.Requests, asked.Requests) ||
				len(c.Resources.Claims) > len(asked.Claims)
		}
	}
	return false
}

func hasMore(live, asked corev1.ResourceList) bool {
	for name := range live {
		if _, ok := asked[name]; !ok {
			return true
		}
	}
	return false
}

// moveToApply returns a copy of entries in which these fields belong to our
// Apply and no longer to our Update.
func moveToApply(entries []metav1.ManagedFieldsEntry, fields *fieldpath.Set) []metav1.ManagedFieldsEntry {
	apply := metav1.ManagedFieldsEntry{
		Manager:    FieldManager,
		Operation:  metav1.ManagedFieldsOperationApply,
		APIVersion: appsv1.SchemeGroupVersion.String(),
		FieldsType: "FieldsV1",
	}
	var moved []metav1.ManagedFieldsEntry
	for _, entry := range entries {
		switch {
		case isOurs(entry) && entry.Operation == metav1.ManagedFieldsOperationApply:
			apply = entry
			fields = fields.Union(fieldsOf(entry))
		case isOurs(entry):
			moved = append(moved, withFields(entry, fieldsOf(entry).Difference(fields)))
		default:
			moved = append(moved, entry)
		}
	}
	return append(moved, withFields(apply, fields))
}

func isOurs(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == FieldManager && entry.Subresource == ""
}

// resourcesPath is where the paths of the container's resources begin.
func resourcesPath() fieldpath.Path {
	return fieldpath.MakePathOrDie("spec", "template", "spec", "containers",
		fieldpath.KeyByFields("name", containerName), "resources")
}

// pathsOf are the paths of the resources in a container.
func pathsOf(resources v1alpha1.IcecreamResources) *fieldpath.Set {
	paths := fieldpath.NewSet()
	add := func(parts ...any) {
		paths.Insert(append(resourcesPath(), fieldpath.MakePathOrDie(parts...)...))
	}
	for name := range resources.Limits {
		add("limits", string(name))
	}
	for name := range resources.Requests {
		add("requests", string(name))
	}
	for _, claim := range resources.Claims {
		key := fieldpath.KeyByFields("name", claim.Name)
		add("claims", key)
		add("claims", key, "name")
		add("claims", key, "request")
	}
	return paths
}

// notAsked are the single limits, requests and claims in owned that are not in asked.
func notAsked(owned, asked *fieldpath.Set) *fieldpath.Set {
	begin := resourcesPath()
	left := fieldpath.NewSet()
	for path := range owned.All() {
		isResource := len(path) >= len(begin)+2 && path[:len(begin)].Equals(begin)
		if isResource && !asked.Has(path) {
			left.Insert(path.Copy())
		}
	}
	return left
}

// fieldsOf reads the fields of an entry; none when they cannot be read.
func fieldsOf(entry metav1.ManagedFieldsEntry) *fieldpath.Set {
	fields := fieldpath.NewSet()
	if entry.FieldsV1 == nil {
		return fields
	}
	if err := fields.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
		return fieldpath.NewSet()
	}
	return fields
}

// withFields returns the entry with other fields.
func withFields(entry metav1.ManagedFieldsEntry, fields *fieldpath.Set) metav1.ManagedFieldsEntry {
	// Sets of fields that came from JSON go back to it.
	raw, _ := fields.ToJSON()
	entry.FieldsV1 = metav1.NewFieldsV1(string(raw))
	return entry
}
