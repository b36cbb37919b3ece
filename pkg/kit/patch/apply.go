package patch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync" //nolint:depguard // for the schema, which never changes

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nicoleh.io/k8s-controller/pkg/kit/pace"
)

// AnnotationAsked is the annotation with the last wish: a digest of everything but the replicas, and the replicas.
const AnnotationAsked = "controller.nicoleh.io/asked"

// Request is a patch to send.
type Request struct {
	Type types.PatchType
	Body []byte
}

// Options returns the options to send it with: an apply takes fields over from other managers.
func (r *Request) Options(manager string) metav1.PatchOptions {
	options := metav1.PatchOptions{FieldManager: manager}
	if r.Type == types.ApplyPatchType {
		options.Force = ptr.To(true)
	}
	return options
}

// Apply returns the server-side apply of want, and a digest of it. want is an apply configuration of a built-in type
// with all fields that the manager sets. The API server creates the object, or sets these fields, removes fields that
// the manager applied earlier and no longer sets, and keeps all others.
//
// The request is nil if want was already applied and, according to metadata.managedFields, nobody has changed or removed
// one of its fields since. So changes that admission made to a request stay. The replicas are left to [Scale].
//
// The UID of live is a precondition. If live is nil, see response.IsTaken. An error names a field of want that does not
// exist, or that occurs twice in a list.
func Apply[O any, T interface {
	*O
	metav1.Object
}](manager string, live T, want any) (wish pace.Wish, request *Request, err error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return wish, nil, err
	}
	applied := &unstructured.Unstructured{Object: content}
	rest := applied.DeepCopy()
	unstructured.RemoveNestedField(rest.Object, "spec", "replicas")
	fields, err := fieldsOf(rest)
	if err != nil {
		return wish, nil, err
	}
	raw, err := rest.MarshalJSON()
	if err != nil {
		return wish, nil, err
	}
	sum := sha256.Sum256(raw)
	replicas, _, err := unstructured.NestedInt64(content, "spec", "replicas")
	wish = pace.Wish{Digest: hex.EncodeToString(sum[:10]), Scale: int32(replicas)}
	if err != nil || live != nil && asked(live).Digest == wish.Digest && fields.Difference(ownFields(manager, live)).Empty() {
		return wish, nil, err
	}
	if live != nil {
		applied.SetUID(live.GetUID())
	}
	annotations := map[string]string{AnnotationAsked: format(wish)}
	maps.Copy(annotations, applied.GetAnnotations())
	applied.SetAnnotations(annotations)
	body, err := applied.MarshalJSON()
	return wish, &Request{types.ApplyPatchType, body}, err
}

// Scale returns a merge patch that changes only spec.replicas. So it works even if Apply is refused, and undoes nothing
// that admission has changed. It is nil if the numbers are equal, or if the manager has already asked for to, and
// admission turned that into from.
func Scale(manager string, live metav1.Object, from, to int32) *Request {
	was := asked(live)
	if from == to || was.Scale == to && ownFields(manager, live).Has(fieldpath.MakePathOrDie("spec", "replicas")) {
		return nil
	}
	was.Scale = to
	body, _ := json.Marshal(map[string]any{ // cannot fail
		"metadata": map[string]any{"uid": live.GetUID(), "annotations": map[string]string{AnnotationAsked: format(was)}},
		"spec":     map[string]any{"replicas": to},
	})
	return &Request{types.MergePatchType, body}
}

// format returns the value of the annotation for a wish.
func format(wish pace.Wish) string { return fmt.Sprintf("%s/%d", wish.Digest, wish.Scale) }

// asked returns the last wish that was asked for; the zero value if that is unknown.
func asked(live metav1.Object) pace.Wish {
	digest, number, _ := strings.Cut(live.GetAnnotations()[AnnotationAsked], "/")
	scale, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return pace.Wish{}
	}
	return pace.Wish{Digest: digest, Scale: int32(scale)}
}

// typeConverter knows the lists and their keys, as the API server does. Reading the schema takes a tenth of a second.
var typeConverter = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(scheme.Scheme) })

// identity are fields that managedFields never lists.
var identity = fieldpath.NewSet(
	fieldpath.MakePathOrDie("apiVersion"),
	fieldpath.MakePathOrDie("kind"),
	fieldpath.MakePathOrDie("metadata", "name"),
	fieldpath.MakePathOrDie("metadata", "namespace"),
)

// fieldsOf returns the fields that an apply of an object sets.
func fieldsOf(applied runtime.Object) (*fieldpath.Set, error) {
	typed, err := typeConverter().ObjectToTyped(applied)
	if err != nil {
		return nil, err
	}
	fields, err := typed.ToFieldSet()
	if err != nil {
		return nil, err
	}
	return fields.Difference(identity), nil
}

// ownFields returns the fields that nobody has changed or removed since the manager set them.
func ownFields(manager string, live metav1.Object) *fieldpath.Set {
	own := fieldpath.NewSet()
	for _, entry := range OwnEntries(manager, live.GetManagedFields()) {
		fields := fieldpath.NewSet()
		if entry.FieldsV1 != nil && fields.FromJSON(entry.FieldsV1.GetRawReader()) == nil {
			own = own.Union(fields)
		}
	}
	return own
}

// OwnEntries returns the entries of a manager. A cache needs no others.
func OwnEntries(manager string, entries []metav1.ManagedFieldsEntry) (own []metav1.ManagedFieldsEntry) {
	for _, entry := range entries {
		if entry.Manager == manager && entry.Subresource == "" {
			own = append(own, entry)
		}
	}
	return own
}
