package main

import (
	"crypto/sha256"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/internal/text"
)

// The caches hold the data of sources, and of everything else as little as decisions need. What a
// stranger writes makes no entry larger than a few kilobytes.

// digestKey is the annotation in which the caches keep the digest of a Secret's data. No real
// annotation can have that key.
const digestKey = "/digest"

// digestOf returns a digest of the data. It never leaves the process.
func digestOf(secret *corev1.Secret) []byte {
	if digest, isKept := secret.Annotations[digestKey]; isKept {
		return []byte(digest)
	}
	data, _ := json.Marshal(secret.Data) // cannot fail, and is sorted by field
	sum := sha256.Sum256(data)
	return sum[:]
}

// StripCopy reduces a copy, in place, to what Decide reads. There are many copies, and their data
// is in the cache of sources already.
func StripCopy(secret *corev1.Secret) {
	digest := digestOf(secret)
	stripped := corev1.Secret{Type: secret.Type, Immutable: secret.Immutable}
	stripped.ObjectMeta = identityOf(secret.ObjectMeta)
	stripped.Labels = map[string]string{LabelSourceNamespace: secret.Labels[LabelSourceNamespace]}
	stripped.Annotations = map[string]string{digestKey: string(digest)}
	for _, key := range []string{AnnotationSourceName, AnnotationMadeFor, AnnotationSourceNamespaceUID} {
		if value, ok := secret.Annotations[key]; ok {
			stripped.Annotations[key] = clipped(value)
		}
	}
	for _, finalizer := range secret.Finalizers[:min(len(secret.Finalizers), 3)] {
		stripped.Finalizers = append(stripped.Finalizers, clipped(finalizer))
	}
	stripped.ManagedFields = lastWrite(secret.ManagedFields)
	*secret = stripped
}

// clipped returns a value that is longer than any name or UID as a shorter one that is as wrong.
func clipped(value string) string { return text.Clip(value, 300) }

func identityOf(meta metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:         meta.Namespace,
		Name:              meta.Name,
		UID:               meta.UID,
		ResourceVersion:   meta.ResourceVersion,
		DeletionTimestamp: meta.DeletionTimestamp,
	}
}

// lastWrite returns the entry of the manager who wrote last, without the fields. Times are
// in seconds, so of two writes in the same second, it is the one that is not secretsync's.
func lastWrite(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var last []metav1.ManagedFieldsEntry
	for _, entry := range entries {
		if len(last) == 0 || last[0].Time.Before(entry.Time) || last[0].Time.Equal(entry.Time) && last[0].Manager == fieldManager {
			last = []metav1.ManagedFieldsEntry{{Manager: entry.Manager, Time: entry.Time}}
		}
	}
	return last
}

// undoneBy names the field manager who changed the copy last, for people.
func (o Observed) undoneBy() string {
	if o.Copy == nil || len(o.Copy.ManagedFields) == 0 || o.Copy.ManagedFields[0].Manager == fieldManager {
		return "someone"
	}
	return "\"" + o.Copy.ManagedFields[0].Manager + "\""
}

// StripSource reduces a Secret in the source namespace, in place, to what a copy needs, and
// removes the data of a Secret that is not copied. Of annotations it keeps what this controller
// reads, because kubectl apply keeps a second copy of the data in one of them.
func (c Config) StripSource(secret *corev1.Secret) {
	data, digest := secret.Data, digestOf(secret)
	stripped := corev1.Secret{ObjectMeta: identityOf(secret.ObjectMeta), Type: secret.Type, Immutable: secret.Immutable}
	stripped.Annotations = map[string]string{}
	if answer := c.answerOf(secret); answer == yes || answer == unclear {
		stripped.Data, stripped.Annotations[digestKey] = data, string(digest)
	}
	for key, value := range secret.Annotations {
		if key == c.Annotation || isOurKey(key) {
			stripped.Annotations[key] = value
		}
	}
	for key := range secret.Labels {
		if isOurKey(key) {
			metav1.SetMetaDataLabel(&stripped.ObjectMeta, key, "")
		}
	}
	*secret = stripped
}

// StripNamespace reduces a namespace, in place, to what Decide reads.
func (c Config) StripNamespace(namespace *corev1.Namespace) {
	stripped := corev1.Namespace{ObjectMeta: identityOf(namespace.ObjectMeta)}
	if namespace.Name != c.SourceNamespace {
		stripped.Labels = namespace.Labels
	}
	for _, key := range []string{c.Annotation, AnnotationConfirm} {
		if value, ok := namespace.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&stripped.ObjectMeta, key, clipped(value))
		}
	}
	*namespace = stripped
}
