package informer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/compact"
)

// Packed is an object as a cache keeps it that holds many and is rarely asked for one of
// them: encoded and compressed, with what indexes and event handlers need next to it. A
// Deployment takes a tenth of the memory that way.
type Packed struct {
	codec                 *codec
	namespace             unique.Handle[string]
	name, resourceVersion string
	ownerName             string
	ownerUID              types.UID
	encoded               compact.Compressed
	managedFields         []packedFields
}

// codec encodes objects of one type, without their managedFields.
type codec struct {
	empty   func() metav1.Object
	encode  func(metav1.Object) ([]byte, error)
	decode  func([]byte, metav1.Object) error
	similar compact.Similar // what was encoded
}

// packedFields is an entry of managedFields, which only its time and the owner's UID tell
// from those of other objects.
type packedFields struct {
	entry unique.Handle[fieldsEntry]
	time  *metav1.Time
}

type fieldsEntry struct {
	manager, apiVersion, fieldsType, subresource string
	operation                                    metav1.ManagedFieldsOperationType
	hasFields                                    bool
	fields                                       string // with thatUID for the owner's
}

// thatUID stands for a UID in JSON, which cannot contain it.
const thatUID = "\x00"

// protobuf is what the types of k8s.io/api have.
type protobuf interface {
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// PackedAfter returns a transform for an informer whose cache keeps each object of type T
// as a [Packed], once strip has reduced it.
func PackedAfter[O any, T interface {
	*O
	metav1.Object
}](strip func(T)) cache.TransformFunc {
	c := &codec{
		empty:  func() metav1.Object { return T(new(O)) },
		encode: func(obj metav1.Object) ([]byte, error) { return json.Marshal(obj) },
		decode: func(raw []byte, obj metav1.Object) error { return json.Unmarshal(raw, obj) },
	}
	if _, ok := any(T(nil)).(protobuf); ok {
		c.encode = func(obj metav1.Object) ([]byte, error) { return obj.(protobuf).Marshal() }
		c.decode = func(raw []byte, obj metav1.Object) error { return obj.(protobuf).Unmarshal(raw) }
	}
	return func(obj any) (any, error) {
		if obj, ok := obj.(T); ok {
			strip(obj)
			return c.pack(obj)
		}
		return obj, nil
	}
}

// pack returns the object packed. The object loses its managedFields.
func (c *codec) pack(obj metav1.Object) (*Packed, error) {
	p := &Packed{
		codec:           c,
		namespace:       unique.Make(obj.GetNamespace()),
		name:            obj.GetName(),
		resourceVersion: obj.GetResourceVersion(),
	}
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		p.ownerName, p.ownerUID = owner.Name, owner.UID
	}
	p.managedFields = packFields(obj.GetManagedFields(), p.ownerUID)
	obj.SetManagedFields(nil)
	encoded, err := c.encode(obj)
	if err != nil {
		return nil, fmt.Errorf("packing %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	p.encoded = c.similar.Compress(encoded)
	return p, nil
}

// Unpack returns the object, which belongs to the caller.
func (p *Packed) Unpack() (metav1.Object, error) {
	obj := p.codec.empty()
	encoded, err := p.encoded.Data()
	if err == nil {
		err = p.codec.decode(encoded, obj)
	}
	if err != nil {
		return nil, fmt.Errorf("unpacking %s/%s: %w", p.GetNamespace(), p.name, err)
	}
	obj.SetManagedFields(unpackFields(p.managedFields, p.ownerUID))
	return obj, nil
}

func packFields(entries []metav1.ManagedFieldsEntry, owner types.UID) []packedFields {
	packed := make([]packedFields, 0, len(entries))
	for _, e := range entries {
		entry := fieldsEntry{e.Manager, e.APIVersion, e.FieldsType, e.Subresource, e.Operation, e.FieldsV1 != nil, ""}
		if e.FieldsV1 != nil {
			entry.fields = e.FieldsV1.GetRawString()
			if owner != "" {
				entry.fields = strings.ReplaceAll(entry.fields, string(owner), thatUID)
			}
		}
		packed = append(packed, packedFields{unique.Make(entry), e.Time})
	}
	return packed
}

func unpackFields(packed []packedFields, owner types.UID) (entries []metav1.ManagedFieldsEntry) {
	for _, p := range packed {
		entry := p.entry.Value()
		e := metav1.ManagedFieldsEntry{
			Manager: entry.manager, APIVersion: entry.apiVersion, FieldsType: entry.fieldsType, Subresource: entry.subresource,
			Operation: entry.operation, Time: p.time.DeepCopy(),
		}
		if entry.hasFields {
			e.FieldsV1 = metav1.NewFieldsV1(strings.ReplaceAll(entry.fields, thatUID, string(owner)))
		}
		entries = append(entries, e)
	}
	return entries
}

// GetName returns the object's name.
func (p *Packed) GetName() string { return p.name }

// GetNamespace returns the object's namespace.
func (p *Packed) GetNamespace() string { return p.namespace.Value() }

// Owner returns the name and the UID of the object's controller. They are empty if it has
// none.
func (p *Packed) Owner() (name string, uid types.UID) { return p.ownerName, p.ownerUID }

// GetObjectMeta implements metav1.ObjectMetaAccessor, for the informer.
func (p *Packed) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: p.GetNamespace(), Name: p.name, ResourceVersion: p.resourceVersion}
}
