package secretsync

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// The metadata of a copy. The label makes a Secret a copy: a Secret without it is someone
// else's.
const (
	LabelSourceNamespace  = "controller.nicoleh.io/secretsync-source-namespace"
	AnnotationSourceName  = "controller.nicoleh.io/secretsync-source-name"
	AnnotationSourceUID   = "controller.nicoleh.io/secretsync-source-uid"
	AnnotationContentHash = "controller.nicoleh.io/secretsync-content-hash"
	// AnnotationInstance names the instance that the copy belongs to, of several with the
	// same source namespace.
	AnnotationInstance = "controller.nicoleh.io/secretsync-instance"
	// AnnotationSourceNamespaceUID is the UID of the source namespace.
	AnnotationSourceNamespaceUID = "controller.nicoleh.io/secretsync-source-namespace-uid"
)

// isCopy reports whether a Secret is a copy of the source of its name, whichever instance
// it belongs to. A copy that someone has copied to another name is not.
func (c Config) isCopy(secret *corev1.Secret) bool {
	name, isNamed := secret.Annotations[AnnotationSourceName]
	return secret.Labels[LabelSourceNamespace] == c.SourceNamespace && (!isNamed || name == secret.Name)
}

// isOurs reports whether a Secret is a copy that belongs to no other instance.
func (c Config) isOurs(secret *corev1.Secret) bool {
	instance, isSigned := secret.Annotations[AnnotationInstance]
	return c.isCopy(secret) && (!isSigned || instance == c.instance())
}

// want returns the copy as it should be. It keeps what others have added to the metadata
// of the present copy, which may be nil, and that copy's UID and resource version are
// preconditions of the update. Of the source's metadata only the name is copied.
func (o Observed) want(present *corev1.Secret) *corev1.Secret {
	want := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.TargetNS.Name, Name: o.Source.Name}}
	if present != nil {
		want.ObjectMeta = *present.ObjectMeta.DeepCopy()
		want.ManagedFields = nil // the API server keeps them if an update has none
	}
	metav1.SetMetaDataLabel(&want.ObjectMeta, LabelSourceNamespace, o.Source.Namespace)
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationSourceName, o.Source.Name)
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationSourceUID, string(o.Source.UID))
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationInstance, o.instance())
	if o.SourceNS != nil {
		metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationSourceNamespaceUID, string(o.SourceNS.UID))
	}
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationContentHash, contentHash(o.Key, o.Source))
	source := o.Source.DeepCopy()
	want.Type, want.Data, want.Immutable = source.Type, source.Data, source.Immutable
	return want
}

// isEqual reports whether the copy has its source's data and immutability.
func (o Observed) isEqual() bool {
	return isImmutable(o.Copy) == isImmutable(o.Source) && hmac.Equal(digestOf(o.Copy), digestOf(o.Source))
}

func isImmutable(secret *corev1.Secret) bool { return ptr.Deref(secret.Immutable, false) }

// alteredIn returns the parts of a copy that the API server has stored differently than
// requested.
func alteredIn(want, stored *corev1.Secret) []string {
	var parts []string
	for _, part := range []struct {
		name   string
		isSame bool
	}{
		{"type", want.Type == stored.Type},
		{"data", hmac.Equal(digestOf(want), digestOf(stored))},
		{"immutability", isImmutable(want) == isImmutable(stored)},
		{"labels", hasAll(stored.Labels, want.Labels)},
		{"annotations", hasAll(stored.Annotations, want.Annotations)},
	} {
		if !part.isSame {
			parts = append(parts, part.name)
		}
	}
	return parts
}

// hasAll reports whether a map has all entries of another.
func hasAll(has, wanted map[string]string) bool {
	for key, value := range wanted {
		if got, ok := has[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// contentHash returns a hash of the Secret's name, type, data and immutability, by which
// someone with the key can compare copies. The name keeps others from seeing that Secrets
// of different names have the same content.
func contentHash(key []byte, secret *corev1.Secret) string {
	mac := hmac.New(sha256.New, key)
	writeField(mac, []byte(secret.Name))
	writeField(mac, []byte(secret.Type))
	writeField(mac, []byte{0})
	if isImmutable(secret) {
		writeField(mac, []byte{1})
	}
	writeField(mac, digestOf(secret))
	return "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil))
}

// digestField is the field in which a stripped copy holds the digest of its former data.
// No real Secret can have a field of that name.
const digestField = "/digest"

// digestOf returns a digest of the data. It never leaves the process.
func digestOf(secret *corev1.Secret) []byte {
	if digest, isStripped := secret.Data[digestField]; isStripped {
		return digest
	}
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(secret.Data)) {
		writeField(sum, []byte(name))
		writeField(sum, secret.Data[name])
	}
	return sum.Sum(nil)
}

// writeField writes a value with its length, so that different sequences of values never
// lead to the same bytes.
func writeField(to hash.Hash, value []byte) {
	to.Write(binary.BigEndian.AppendUint64(nil, uint64(len(value))))
	to.Write(value)
}

// lastManager returns the field manager who changed the copy last; empty if that is
// unknown or was secretsync.
func (o Observed) lastManager() string {
	if o.Copy == nil || len(o.Copy.ManagedFields) == 0 {
		return ""
	}
	return o.Copy.ManagedFields[0].Manager
}
