package main

import (
	"crypto/sha256"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/internal/text"
)

// The caches keep only what decisions read. They keep a digest of a Secret's data, which is read live before it is
// written. An entry takes no more than a kilobyte or two, whatever others write.

// digestKey is the annotation in which the caches keep the digest of a Secret's data. No real
// annotation can have that key.
const digestKey = "/digest"

// digestOf returns a digest of the data. It never leaves the process.
func digestOf(secret *corev1.Secret) string {
	if digest, isKept := secret.Annotations[digestKey]; isKept {
		return digest
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%x", secret.Data)) // sorted by key
	return string(sum[:])
}

func hasSameData(a, b *corev1.Secret) bool { return digestOf(a) == digestOf(b) }

// stripCopy reduces a copy, in place.
func stripCopy(secret *corev1.Secret) {
	stripped := strippedSecret(secret)
	stripped.Labels = map[string]string{LabelSourceNamespace: secret.Labels[LabelSourceNamespace]}
	if madeFor, ok := secret.Annotations[AnnotationMadeFor]; ok {
		stripped.Annotations[AnnotationMadeFor] = clipped(madeFor)
	}
	*secret = stripped
}

// stripSource reduces a Secret in the source namespace, in place.
func stripSource(secret *corev1.Secret) {
	stripped := strippedSecret(secret)
	if value, ok := secret.Annotations[Annotation]; ok {
		stripped.Annotations[Annotation] = value
	}
	*secret = stripped
}

func strippedSecret(secret *corev1.Secret) corev1.Secret {
	stripped := corev1.Secret{ObjectMeta: identityOf(secret.ObjectMeta), Type: secret.Type, Immutable: secret.Immutable}
	stripped.Annotations = map[string]string{digestKey: digestOf(secret)}
	return stripped
}

// stripNamespace reduces a namespace, in place.
func stripNamespace(namespace *corev1.Namespace) {
	stripped := corev1.Namespace{ObjectMeta: identityOf(namespace.ObjectMeta)}
	if value, ok := namespace.Annotations[Annotation]; ok {
		stripped.Annotations = map[string]string{Annotation: clipped(value)}
	}
	*namespace = stripped
}

// clipped shortens a value. No valid value is long enough to be shortened, and an invalid one stays invalid.
func clipped(value string) string { return text.Clip(value, 400) }

func identityOf(meta metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:         meta.Namespace,
		Name:              meta.Name,
		UID:               meta.UID,
		ResourceVersion:   meta.ResourceVersion,
		CreationTimestamp: meta.CreationTimestamp,
		DeletionTimestamp: meta.DeletionTimestamp,
	}
}
