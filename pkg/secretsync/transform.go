package secretsync

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
)

// byNamespace is what copies can be asked for besides a name.
const byNamespace = "namespace of copies"

// setUpCaches makes the caches keep no more of each object than is read here, and copies be
// found by their namespace.
func (c *Controller) setUpCaches() error {
	return errors.Join(
		c.copies.AddIndexers(cache.Indexers{byNamespace: cache.MetaNamespaceIndexFunc}),
		c.sources.SetTransform(informer.Stripped(c.config.StripSource)),
		c.copies.SetTransform(informer.Stripped(StripCopy)),
		c.namespaces.SetTransform(informer.Stripped(c.config.StripNamespace)),
	)
}

// StripCopy reduces a copy, in place, to what Decide reads and an update keeps. There are
// many copies, and their data is already in the cache of sources.
func StripCopy(secret *corev1.Secret) {
	secret.ManagedFields = lastForeignWrite(secret)
	secret.Data = map[string][]byte{digestField: digestOf(secret)}
}

// lastForeignWrite returns the entry of the managed fields, without the fields, of the
// manager who wrote a copy last; nil if that was secretsync or cannot be known.
func lastForeignWrite(secret *corev1.Secret) []metav1.ManagedFieldsEntry {
	var last metav1.ManagedFieldsEntry
	for _, entry := range secret.ManagedFields {
		isLater := entry.Time != nil && (last.Time == nil || last.Time.Before(entry.Time) || last.Time.Equal(entry.Time) && last.Manager == fieldManager)
		if isLater {
			last = metav1.ManagedFieldsEntry{Manager: entry.Manager, Time: entry.Time}
		}
	}
	if last.Manager == fieldManager || last.Manager == "" {
		return nil
	}
	return []metav1.ManagedFieldsEntry{last}
}

// StripSource reduces a Secret in the source namespace, in place, to what a copy needs,
// and removes the data of a Secret that is not copied. Annotations are removed because
// kubectl apply keeps a second copy of the data in one of them.
func (c Config) StripSource(secret *corev1.Secret) {
	if !c.IsSource(secret) && secret.Name != HashKey {
		secret.Data = nil
	}
	secret.Labels, secret.Annotations = nil, c.marks(secret)
	secret.ManagedFields, secret.OwnerReferences = nil, nil
}

// StripNamespace reduces a namespace, in place, to what Decide reads.
func (c Config) StripNamespace(namespace *corev1.Namespace) {
	*namespace = corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:              namespace.Name,
		UID:               namespace.UID,
		ResourceVersion:   namespace.ResourceVersion,
		DeletionTimestamp: namespace.DeletionTimestamp,
		Labels:            namespace.Labels,
		Annotations:       c.marks(namespace),
	}}
}

// marks returns the annotations of an object that matter here.
func (c Config) marks(obj metav1.Object) map[string]string {
	var marks map[string]string
	for _, key := range []string{c.Annotation, AnnotationNamespaces, AnnotationNamespaceSelector, AnnotationConfirm} {
		if value, ok := obj.GetAnnotations()[key]; ok {
			if marks == nil {
				marks = map[string]string{}
			}
			marks[key] = value
		}
	}
	return marks
}
