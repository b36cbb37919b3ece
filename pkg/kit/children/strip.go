package children

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// StripForeign reduces an object that is someone else's, in place, to what shows that: a
// cache holds all objects of a kind, and most of them are nobody's children here.
func StripForeign[O any, T interface {
	*O
	metav1.Object
}](obj T) {
	kept := T(new(O))
	kept.SetName(obj.GetName())
	kept.SetNamespace(obj.GetNamespace())
	kept.SetUID(obj.GetUID())
	kept.SetResourceVersion(obj.GetResourceVersion())
	kept.SetDeletionTimestamp(obj.GetDeletionTimestamp())
	kept.SetOwnerReferences(obj.GetOwnerReferences())
	*obj = *kept
}
