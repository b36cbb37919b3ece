package secretsync

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
)

// What a copy carries. The label is what makes a Secret a copy: without it, a
// Secret is somebody else's.
const (
	LabelSourceNamespace  = "controller.nicoleh.io/secretsync-source-namespace"
	AnnotationSourceName  = "controller.nicoleh.io/secretsync-source-name"
	AnnotationSourceUID   = "controller.nicoleh.io/secretsync-source-uid"
	AnnotationContentHash = "controller.nicoleh.io/secretsync-content-hash"
)

// HashKey is the Secret in the source namespace that holds the key of content
// hashes, in its field "key". It is never a source.
//
// Who may see a copy's metadata, such as in a dashboard or a dump without data,
// could find a short password by trying which one has that hash, and a salt that
// stands next to it would not keep them from it. So the hash has a key, and the
// key is as well guarded as the sources: who can read it needs no hash.
const HashKey = "secretsync-hash-key"

// Config is what an operator can choose.
type Config struct {
	// SourceNamespace is where the Secrets to be copied are.
	SourceNamespace string
	// Annotation marks the Secrets to be copied, and the namespaces to copy them
	// to. Any value counts but "false".
	Annotation string
}

// Validate says what is wrong with the config, by the names of the flags.
func (c Config) Validate() error {
	switch {
	case len(validation.IsDNS1123Label(c.SourceNamespace)) > 0:
		return fmt.Errorf("-secretsync-source-namespace=%q is not the name of a namespace", c.SourceNamespace)
	case len(validation.IsQualifiedName(strings.ToLower(c.Annotation))) > 0: // as the API server has it
		return fmt.Errorf("-secretsync-annotation=%q is not the key of an annotation, such as example.com/secretsync", c.Annotation)
	}
	return nil
}

// Observed is all that a decision about one name in one namespace depends on.
type Observed struct {
	Config
	Namespace *corev1.Namespace // the target; nil if there is none
	Source    *corev1.Secret    // the Secret of that name in the source namespace; nil if there is none
	Copy      *corev1.Secret    // the labelled one in the target, as StripCopy leaves it; nil if there is none
	Key       []byte            // of content hashes; needed if IsWanted
}

// Action is what to do about a copy.
type Action string

// Each of the last four is one write, except that Replace is two.
const (
	None    Action = "none"
	Blocked Action = "blocked" // by a Secret that is not ours
	Create  Action = "create"
	Update  Action = "update"
	Replace Action = "replace" // delete, then create
	Delete  Action = "delete"
)

// Decision is what to do. Create, Update and Replace say how the copy should be.
type Decision struct {
	Action Action
	Want   *corev1.Secret
	Why    string // of a Replace: what cannot be changed in place
}

// IsMarked says whether the annotation asks for copies of, or in, an object.
func (c Config) IsMarked(obj metav1.Object) bool {
	value, ok := obj.GetAnnotations()[c.Annotation]
	return ok && value != "false"
}

// IsSource says whether a Secret is to be copied.
func (c Config) IsSource(secret *corev1.Secret) bool {
	return secret.Namespace == c.SourceNamespace && secret.Name != HashKey &&
		secret.DeletionTimestamp == nil && c.IsMarked(secret)
}

// isSame reports whether two states of a Secret of the source namespace ask for the
// same copies.
func (c Config) isSame(a, b *corev1.Secret) bool {
	return a.UID == b.UID && c.IsSource(a) == c.IsSource(b) && a.Type == b.Type &&
		ptr.Equal(a.Immutable, b.Immutable) && maps.EqualFunc(a.Data, b.Data, bytes.Equal)
}

// IsTarget says whether a namespace is to be copied to.
func (c Config) IsTarget(namespace *corev1.Namespace) bool {
	return !c.isReserved(namespace.Name) && namespace.DeletionTimestamp == nil && c.IsMarked(namespace)
}

// isReserved says whether nothing is ever written to or deleted from a namespace.
func (c Config) isReserved(namespace string) bool {
	return namespace == metav1.NamespaceSystem || namespace == metav1.NamespacePublic || namespace == c.SourceNamespace
}

// IsWanted says whether there should be a copy.
func (o Observed) IsWanted() bool {
	return o.Namespace != nil && o.IsTarget(o.Namespace) && o.Source != nil && o.IsSource(o.Source)
}

// isOurs says whether a labelled Secret is a copy of the Secret of its name. One
// that was itself copied to another name by hand is not.
func (o Observed) isOurs(secret *corev1.Secret) bool {
	name, ok := secret.Annotations[AnnotationSourceName]
	return secret.Labels[LabelSourceNamespace] == o.SourceNamespace && (!ok || name == secret.Name)
}

// Decide says what to do so that there is a copy if there should be one, equal to
// its source in type, data and immutability.
func Decide(o Observed) Decision {
	nothing := Decision{Action: None}
	switch {
	case o.Namespace == nil || o.isReserved(o.Namespace.Name) || o.Namespace.DeletionTimestamp != nil:
		return nothing // a namespace that ends takes its Secrets with it
	case o.Copy != nil && !o.isOurs(o.Copy) && o.IsWanted():
		return Decision{Action: Blocked}
	case o.Copy != nil && (o.Copy.DeletionTimestamp != nil || !o.isOurs(o.Copy)):
		return nothing
	case !o.IsWanted() && o.Copy == nil:
		return nothing
	case !o.IsWanted():
		return Decision{Action: Delete}
	case o.Copy == nil:
		return Decision{Action: Create, Want: o.want(nil)}
	}
	if why := o.whyReplace(); why != "" {
		return Decision{Action: Replace, Want: o.want(nil), Why: why}
	}
	want := o.want(o.Copy)
	if o.isEqual() && maps.Equal(want.Labels, o.Copy.Labels) && maps.Equal(want.Annotations, o.Copy.Annotations) {
		return nothing
	}
	return Decision{Action: Update, Want: want}
}

// whyReplace says what of the copy differs from its source and is not allowed to
// change; empty if nothing does.
func (o Observed) whyReplace() string {
	switch {
	case o.Copy.Type != o.Source.Type:
		return "its type has changed"
	case isImmutable(o.Copy) && !o.isEqual():
		return "it is immutable"
	}
	return ""
}

// isEqual says whether the copy has its source's data and immutability.
func (o Observed) isEqual() bool {
	return isImmutable(o.Copy) == isImmutable(o.Source) && hmac.Equal(digestOf(o.Copy), digestOf(o.Source))
}

func isImmutable(secret *corev1.Secret) bool { return ptr.Deref(secret.Immutable, false) }

// want is the copy as it should be. What others have added to the metadata of the
// present one, if there is one, stays; its UID and resource version are
// preconditions of the update. Of the source's metadata only the name is copied.
func (o Observed) want(present *corev1.Secret) *corev1.Secret {
	want := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace.Name, Name: o.Source.Name}}
	if present != nil {
		want.ObjectMeta = *present.ObjectMeta.DeepCopy()
	}
	metav1.SetMetaDataLabel(&want.ObjectMeta, LabelSourceNamespace, o.Source.Namespace)
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationSourceName, o.Source.Name)
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationSourceUID, string(o.Source.UID))
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationContentHash, contentHash(o.Key, o.Source))
	source := o.Source.DeepCopy()
	want.Type, want.Data, want.Immutable = source.Type, source.Data, source.Immutable
	return want
}

// contentHash identifies type, data and immutability to those who have the key.
func contentHash(key []byte, secret *corev1.Secret) string {
	mac := hmac.New(sha256.New, key)
	writeField(mac, []byte(secret.Type))
	writeField(mac, []byte{0})
	if isImmutable(secret) {
		writeField(mac, []byte{1})
	}
	writeField(mac, digestOf(secret))
	return "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil))
}

// digestField is the name under which the data of a stripped copy holds the digest
// of what it was. No Secret can have a field of that name.
const digestField = "/digest"

// digestOf is a digest of the data. It does not leave the process.
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

// writeField writes a value such that no other sequence of values reads the same.
func writeField(to hash.Hash, value []byte) {
	to.Write(binary.BigEndian.AppendUint64(nil, uint64(len(value))))
	to.Write(value)
}

// StripCopy reduces a copy, in place, to what Decide reads and an update keeps:
// there are many copies, and their data is in the source.
func StripCopy(secret *corev1.Secret) {
	secret.ManagedFields = nil // the API server keeps them when an update has none
	secret.Data = map[string][]byte{digestField: digestOf(secret)}
}

// StripSource reduces a Secret of the source namespace, in place, to what a copy
// takes; nothing of what nobody wants copied. kubectl apply keeps another copy of
// the data in an annotation.
func (c Config) StripSource(secret *corev1.Secret) {
	if !c.IsSource(secret) && secret.Name != HashKey {
		secret.Data = nil
	}
	secret.Labels, secret.Annotations = nil, c.mark(secret)
	secret.ManagedFields, secret.OwnerReferences = nil, nil
}

// StripNamespace reduces a namespace, in place, to what Decide reads.
func (c Config) StripNamespace(namespace *corev1.Namespace) {
	*namespace = corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:              namespace.Name,
		UID:               namespace.UID,
		ResourceVersion:   namespace.ResourceVersion,
		DeletionTimestamp: namespace.DeletionTimestamp,
		Annotations:       c.mark(namespace),
	}}
}

// mark is the annotation of an object that matters here.
func (c Config) mark(obj metav1.Object) map[string]string {
	if value, ok := obj.GetAnnotations()[c.Annotation]; ok {
		return map[string]string{c.Annotation: value}
	}
	return nil
}
