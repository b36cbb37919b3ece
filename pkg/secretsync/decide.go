package secretsync

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

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
	// AnnotationInstance says which of several secretsyncs with the same source
	// namespace looks after the copy.
	AnnotationInstance = "controller.nicoleh.io/secretsync-instance"
	// AnnotationHomeUID is the UID of the source namespace.
	AnnotationHomeUID = "controller.nicoleh.io/secretsync-source-namespace-uid"
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
	// to, if its value is clearly a yes: "true", or none.
	Annotation string
	// RequireReceivers has those Secrets copied alone that say which namespaces may
	// have them.
	RequireReceivers bool
	// Instance tells this secretsync from others that copy Secrets of the same
	// namespace. It is the annotation if empty.
	Instance string
}

// instance is whose copies are ours.
func (c Config) instance() string { return cmp.Or(c.Instance, c.Annotation) }

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
	Now       time.Time
	Home      *corev1.Namespace // the source namespace; nil if there is none
	Namespace *corev1.Namespace // the target; nil if there is none
	Source    *corev1.Secret    // the Secret of that name in the source namespace; nil if there is none
	Copy      *corev1.Secret    // the labelled one in the target, as StripCopy leaves it; nil if there is none
	Key       []byte            // of content hashes; needed if IsWanted
	Memory    Memory
	Brake     string // why the copy is not to be deleted; empty if nothing is known against that
}

// Action is what to do about a copy.
type Action string

// Each of the last four is one write, except that Replace is two.
const (
	None    Action = "none"
	Blocked Action = "blocked" // by what only somebody else can change
	Later   Action = "later"   // somebody undoes the same each time
	Create  Action = "create"
	Update  Action = "update"
	Replace Action = "replace" // delete, then create
	Delete  Action = "delete"
)

// Decision is what to do. Create, Update and Replace say how the copy should be.
type Decision struct {
	Action  Action
	Want    *corev1.Secret
	Why     string        // of a Replace: what cannot be changed in place
	Goal    string        // what there should be in the end, by which decisions can be compared
	IsRetry bool          // somebody has undone the last writes for the goal
	Problem Problem       // that there is, although nothing was refused
	Again   time.Duration // when to look again even if nothing changes; zero for never
}

// goalGone is that there is no copy.
const goalGone = "gone"

func (d Decision) writes() bool {
	return d.Action == Create || d.Action == Update || d.Action == Replace || d.Action == Delete
}

// IsMarked says whether the annotation asks for copies of, or in, an object.
func (c Config) IsMarked(obj metav1.Object) bool {
	value, ok := obj.GetAnnotations()[c.Annotation]
	return ok && isYes(value)
}

// IsSource says whether a Secret is to be copied.
func (c Config) IsSource(secret *corev1.Secret) bool {
	return secret.Namespace == c.SourceNamespace && secret.Name != HashKey &&
		secret.DeletionTimestamp == nil && c.IsMarked(secret)
}

// isSame reports whether two states of a Secret of the source namespace ask for the
// same copies.
func (c Config) isSame(a, b *corev1.Secret) bool {
	return a.UID == b.UID && c.IsSource(a) == c.IsSource(b) && a.Type == b.Type && maps.Equal(c.marks(a), c.marks(b)) &&
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
	return o.Namespace != nil && o.IsTarget(o.Namespace) && o.Source != nil && o.IsSource(o.Source) && o.mayReceive(o.Source, o.Namespace)
}

// isCopy says whether a Secret is a copy of the Secret of its name, whoever looks
// after it. One that was itself copied to another name by hand is not.
func (c Config) isCopy(secret *corev1.Secret) bool {
	name, isNamed := secret.Annotations[AnnotationSourceName]
	return secret.Labels[LabelSourceNamespace] == c.SourceNamespace && (!isNamed || name == secret.Name)
}

// isOurs says whether a Secret is a copy that no other instance looks after.
func (c Config) isOurs(secret *corev1.Secret) bool {
	instance, isSigned := secret.Annotations[AnnotationInstance]
	return c.isCopy(secret) && (!isSigned || instance == c.instance())
}

// Decide says what to do so that there is a copy if there should be one, equal to
// its source in type, data and immutability. What somebody undoes each time is done
// later and later.
func Decide(o Observed) Decision {
	d := o.decide()
	if d.Goal == "" || d.Goal != o.Memory.Goal {
		return d
	}
	wait := o.Memory.wait(o.Now)
	switch {
	case d.writes() && wait > 0:
		return o.later(d, wait)
	case d.writes():
		d.IsRetry = o.Memory.isUndone()
	case d.Action == None && o.Memory.Altered == "":
		d.Problem, d.Again = o.Memory.lasting(o.Now), wait
	}
	return d
}

// later is the decision put off for some time, or until it is its turn if that is
// zero. The problem is what it was.
func (o Observed) later(d Decision, wait time.Duration) Decision {
	return Decision{Action: Later, Goal: d.Goal, Problem: cmp.Or(o.Memory.Problem, o.Memory.problem()), Again: wait}
}

// decide says what there is to do, whatever became of it the last time.
func (o Observed) decide() Decision {
	switch {
	case isGoing(o.Namespace) || o.isReserved(o.Namespace.Name):
		return Decision{Action: None} // a namespace that ends takes its Secrets with it
	case o.IsWanted():
		return o.keep()
	case o.Copy == nil || !o.isOurs(o.Copy):
		return Decision{Action: None, Goal: goalGone}
	case o.Copy.DeletionTimestamp != nil:
		return o.kept("it should be gone")
	}
	if why := o.whyHeld(); why != "" {
		return Decision{Action: Blocked, Problem: Problem{ReasonHeld, why}}
	}
	return Decision{Action: Delete, Goal: goalGone}
}

// keep says what to do about a copy that should be there.
func (o Observed) keep() Decision {
	if o.Copy == nil {
		want := o.want(nil)
		return Decision{Action: Create, Want: want, Goal: goalOf(want)}
	}
	if !o.isOurs(o.Copy) {
		return Decision{Action: Blocked, Problem: Problem{ReasonNameTaken, o.whyTaken()}}
	}
	want := o.want(o.Copy)
	isRight := o.isEqual() && o.Copy.Type == o.Source.Type && maps.Equal(want.Labels, o.Copy.Labels) && maps.Equal(want.Annotations, o.Copy.Annotations)
	switch why := o.whyReplace(); {
	case isRight:
		return Decision{Action: None, Goal: goalOf(want)}
	case o.Copy.DeletionTimestamp != nil:
		return o.kept("it is not as its source is now")
	case why != "":
		return Decision{Action: Replace, Want: o.want(nil), Why: why, Goal: goalOf(want)}
	default:
		return Decision{Action: Update, Want: want, Goal: goalOf(want)}
	}
}

// kept is the decision about a copy that is being deleted, and that is wrong in that
// it is still there.
func (o Observed) kept(wrong string) Decision {
	return Decision{Action: Blocked, Problem: Problem{ReasonTerminating, fmt.Sprintf("the copy is being deleted, but %s keep it, and %s", finalizersOf(o.Copy), wrong)}}
}

func finalizersOf(secret *corev1.Secret) string {
	var names []string
	for _, name := range secret.Finalizers {
		names = append(names, strconv.Quote(name))
	}
	return "finalizers (" + strings.Join(names, ", ") + ")"
}

// whyTaken says why the Secret that is there is not ours.
func (o Observed) whyTaken() string {
	if o.isCopy(o.Copy) {
		return fmt.Sprintf("a copy of that name already exists and belongs to another instance of secretsync, %q", o.Copy.Annotations[AnnotationInstance])
	}
	return errTaken.Error()
}

// errTaken says that there is a Secret of the name that is not a copy.
var errTaken = errors.New("a Secret of that name already exists and is not managed by secretsync")

// goalOf tells copies from each other by what is copied.
func goalOf(want *corev1.Secret) string {
	return want.Annotations[AnnotationContentHash] + " " + want.Annotations[AnnotationSourceUID]
}

// alteredIn says in what the API server has stored a copy otherwise than requested.
func alteredIn(want, stored *corev1.Secret) []string {
	var fields []string
	for _, field := range []struct {
		name   string
		isSame bool
	}{
		{"type", want.Type == stored.Type},
		{"data", hmac.Equal(digestOf(want), digestOf(stored))},
		{"immutability", isImmutable(want) == isImmutable(stored)},
		{"labels", isCovered(want.Labels, stored.Labels)},
		{"annotations", isCovered(want.Annotations, stored.Annotations)},
	} {
		if !field.isSame {
			fields = append(fields, field.name)
		}
	}
	return fields
}

// isCovered says whether a map has all of another.
func isCovered(wanted, has map[string]string) bool {
	for key, value := range wanted {
		if got, ok := has[key]; !ok || got != value {
			return false
		}
	}
	return true
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
		want.ManagedFields = nil // the API server keeps them when an update has none
	}
	metav1.SetMetaDataLabel(&want.ObjectMeta, LabelSourceNamespace, o.Source.Namespace)
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationSourceName, o.Source.Name)
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationSourceUID, string(o.Source.UID))
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationInstance, o.instance())
	if o.Home != nil {
		metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationHomeUID, string(o.Home.UID))
	}
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationContentHash, contentHash(o.Key, o.Source))
	source := o.Source.DeepCopy()
	want.Type, want.Data, want.Immutable = source.Type, source.Data, source.Immutable
	return want
}

// contentHash identifies type, data and immutability of the Secret of that name to
// those who have the key. Nobody else can see by it that Secrets of different names
// hold the same.
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
	secret.ManagedFields = lastManager(secret)
	secret.Data = map[string][]byte{digestField: digestOf(secret)}
}

// lastManager is the managed fields' entry, without the fields, of who wrote a copy
// last; none if that was secretsync, or if it cannot be known.
func lastManager(secret *corev1.Secret) []metav1.ManagedFieldsEntry {
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

// undoer is who has changed the copy; empty if that is not known.
func (o Observed) undoer() string {
	if o.Copy == nil || len(o.Copy.ManagedFields) == 0 {
		return ""
	}
	return o.Copy.ManagedFields[0].Manager
}

// StripSource reduces a Secret of the source namespace, in place, to what a copy
// takes; nothing of what nobody wants copied. kubectl apply keeps another copy of
// the data in an annotation.
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

// marks are the annotations of an object that matter here.
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
