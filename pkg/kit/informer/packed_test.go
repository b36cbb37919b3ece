package informer_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
)

// recipe is a kind without protocol buffers.
type recipe struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
	Flavor            string `json:"flavor"`
}

func (r *recipe) DeepCopyObject() runtime.Object { return ptr.To(*r) }

// What comes out is what went in.
func TestPacked(t *testing.T) {
	at := metav1.NewTime(time.Unix(1e9, 0))
	meta := metav1.ObjectMeta{
		Namespace: "parlor", Name: "vanilla", UID: "uid", ResourceVersion: "7", Generation: 2,
		CreationTimestamp: at, DeletionTimestamp: &at, Finalizers: []string{"parlor/melt"},
		Labels:          map[string]string{"flavor": "vanilla"},
		OwnerReferences: []metav1.OwnerReference{{Name: "other", UID: "other"}, {Kind: "Parlor", Name: "sundae", UID: "uid-of-sundae", Controller: ptr.To(true)}},
		ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "parlor", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"uid-of-sundae\"}":{}}},"f:spec":{}}`)},
			{Manager: "other", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status"},
		},
	}
	for name, test := range map[string]struct {
		obj  metav1.Object
		pack cache.TransformFunc
	}{
		"with protocol buffers":     {&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)}}, informer.PackedAfter(func(*appsv1.Deployment) {})},
		"without any":               {&recipe{ObjectMeta: meta, Flavor: "mint"}, informer.PackedAfter(func(*recipe) {})},
		"without an owner or field": {&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}, informer.PackedAfter(func(*appsv1.Deployment) {})},
	} {
		t.Run(name, func(t *testing.T) {
			want := test.obj.(runtime.Object).DeepCopyObject().(metav1.Object)
			packed := pack(t, test.pack, test.obj)
			for range 2 { // each is the caller's own
				got, err := packed.Unpack()
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("(-want +got):\n%s", diff)
				}
				got.SetLabels(nil)
				for _, e := range got.GetManagedFields() {
					if e.Time != nil {
						e.Time.Time = time.Time{}
					}
				}
			}
			at := packed.GetObjectMeta()
			if at.GetNamespace() != want.GetNamespace() || at.GetName() != want.GetName() || at.GetResourceVersion() != want.GetResourceVersion() {
				t.Errorf("metadata at hand: %+v", at)
			}
			var wantName, wantUID string
			if owner := metav1.GetControllerOf(want); owner != nil {
				wantName, wantUID = owner.Name, string(owner.UID)
			}
			if name, uid := packed.Owner(); name != wantName || string(uid) != wantUID {
				t.Errorf("owner %q, %q", name, uid)
			}
		})
	}
}

// An object is reduced before it is packed, and what is no object of the type stays as it is.
func TestPackedAfter(t *testing.T) {
	p := informer.PackedAfter(func(d *appsv1.Deployment) { d.Spec = appsv1.DeploymentSpec{} })
	got, err := pack(t, p, &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Paused: true}}).Unpack()
	if err != nil || got.(*appsv1.Deployment).Spec.Paused {
		t.Errorf("got %+v: %v", got, err)
	}
	packed := pack(t, p, &appsv1.Deployment{})
	for _, other := range []any{packed, cache.DeletedFinalStateUnknown{Key: "parlor/vanilla"}} {
		if got, err := p(other); got != other || err != nil {
			t.Errorf("%v became %v: %v", other, got, err)
		}
	}
}

// Objects that are packed and unpacked at the same time have nothing to do with each other,
// then and afterward.
func TestPackedIsSafeForConcurrentUse(t *testing.T) {
	transform := informer.PackedAfter(func(*appsv1.Deployment) {})
	deployment := func(i int) *appsv1.Deployment {
		flavors := strings.Repeat(fmt.Sprint(i), 10*i)
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
			Name:          fmt.Sprint(i),
			Labels:        map[string]string{"flavors": flavors},
			ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(flavors)}},
		}}
	}
	unpacked := make([]metav1.Object, 400)
	var working sync.WaitGroup
	for worker := range 4 {
		working.Go(func() {
			for i := worker; i < len(unpacked); i += 4 {
				packed, err := transform(deployment(i))
				if err != nil {
					t.Error(err)
					return
				}
				if unpacked[i], err = packed.(*informer.Packed).Unpack(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
	for i, got := range unpacked {
		if diff := cmp.Diff(metav1.Object(deployment(i)), got); diff != "" {
			t.Fatalf("%d (-want +got):\n%s", i, diff)
		}
	}
}

func pack(t *testing.T, transform cache.TransformFunc, obj metav1.Object) *informer.Packed {
	t.Helper()
	packed, err := transform(obj)
	if err != nil {
		t.Fatal(err)
	}
	return packed.(*informer.Packed)
}
