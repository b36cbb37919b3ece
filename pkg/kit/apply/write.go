package apply

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Writer writes the objects of one kind.
//
// Its errors wrap those of the API server. A conflict, an object that already exists
// and one that is gone all mean that the API server knows more than was known here.
type Writer interface {
	// Write creates or applies child, and returns the object as the API server stored
	// it. It never takes over an object that it did not expect: a creation fails if
	// there is one of the name, and an apply if that has another UID.
	Write(ctx context.Context, child Child) (metav1.Object, error)
	// Delete deletes an object, with its dependents in the background, if it still has
	// the UID and the resourceVersion that were seen.
	Delete(ctx context.Context, d Deletion) error
}

// Client is what typed clients have in common.
type Client[T any] interface {
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// NewWriter returns a writer for the kind of these clients, with that field manager:
//
//	apply.NewWriter("my-controller", kube.AppsV1().Deployments)
func NewWriter[O any, T interface {
	*O
	metav1.Object
}, C Client[T]](manager string, clients func(namespace string) C) Writer {
	return writer[O, T, C]{manager, kindOf(T(nil)), clients}
}

type writer[O any, T interface {
	*O
	metav1.Object
}, C Client[T]] struct {
	manager string
	kind    string
	clients func(namespace string) C
}

func (w writer[O, T, C]) Write(ctx context.Context, child Child) (metav1.Object, error) {
	client := w.clients(child.Want.GetNamespace())
	if child.UID == "" {
		return w.create(ctx, client, child)
	}
	return w.apply(ctx, client, child)
}

func (w writer[O, T, C]) create(ctx context.Context, client C, child Child) (metav1.Object, error) {
	want, ok := child.Want.(T)
	if !ok {
		return nil, fmt.Errorf("creating %s %q: it is a %T", w.kind, child.Want.GetName(), child.Want)
	}
	created, err := client.Create(ctx, want, metav1.CreateOptions{FieldManager: w.manager})
	if err != nil {
		return nil, fmt.Errorf("creating %s %q: %w", w.kind, child.Want.GetName(), err)
	}
	return created, nil
}

func (w writer[O, T, C]) apply(ctx context.Context, client C, child Child) (metav1.Object, error) {
	name := child.Want.GetName()
	if child.ManagedFields != nil {
		patch, err := child.ManagedFieldsPatch()
		if err != nil {
			return nil, err
		}
		if _, err := client.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: w.manager}); err != nil {
			return nil, fmt.Errorf("updating the managed fields of %s %q: %w", w.kind, name, err)
		}
	}
	patch, err := child.Patch()
	if err != nil {
		return nil, err
	}
	// The API server knows the type of each field that it applies, so it refuses an unknown one
	// in any case. Validation would parse the patch once more, to look for fields in it twice.
	applied, err := client.Patch(ctx, name, types.ApplyPatchType, patch, metav1.PatchOptions{
		FieldManager:    w.manager,
		Force:           ptr.To(true),
		FieldValidation: metav1.FieldValidationIgnore,
	})
	if isOfAnotherUID(err) {
		err = apierrors.NewConflict(child.Resource.GroupResource(), name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("updating %s %q: %w", w.kind, name, err)
	}
	return applied, nil
}

// isOfAnotherUID reports whether an apply was refused because the object of that name
// has another UID: the API server calls that an invalid change of the UID.
func isOfAnotherUID(err error) bool {
	cause, ok := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	return apierrors.IsInvalid(err) && ok && cause.Field == "metadata.uid"
}

func (w writer[O, T, C]) Delete(ctx context.Context, d Deletion) error {
	err := w.clients(d.Namespace).Delete(ctx, d.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &d.UID, ResourceVersion: &d.ResourceVersion},
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	})
	if err != nil {
		return fmt.Errorf("deleting %s %q: %w", w.kind, d.Name, err)
	}
	return nil
}
