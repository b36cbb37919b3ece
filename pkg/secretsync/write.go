package secretsync

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
)

// write makes the writes that were decided on. It returns the parts of the copy that the
// API server has stored differently than requested.
func (c *Controller) write(ctx context.Context, name cache.ObjectName, o Observed, d Decision) (altered []string, err error) {
	switch d.Action {
	case Delete:
		return nil, c.delete(ctx, o.Copy)
	case Update:
		return c.update(ctx, name, d.Want)
	case Replace:
		if err := c.delete(ctx, o.Copy); err != nil {
			return nil, err
		}
		c.record(o.Source, name, corev1.EventTypeNormal, ReasonReplaced, "Replace", "Namespace %q: deleting and re-creating the copy, because %s", name.Namespace, d.Why)
	default:
	}
	return c.create(ctx, name, o.Memory.Problem.Reason == ReasonNameTaken, d.Want)
}

// create creates a copy where the cache shows no Secret of that name. If there is one
// after all, it is left alone. Where one was in the way before, create looks first.
func (c *Controller) create(ctx context.Context, name cache.ObjectName, wasTaken bool, want *corev1.Secret) (altered []string, err error) {
	if wasTaken {
		if err := c.requireFree(ctx, name); err != nil {
			return nil, err
		}
	}
	created, err := c.secrets(name.Namespace).Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		if taken := c.requireFree(ctx, name); taken != nil {
			return nil, taken
		}
		return nil, err // a copy that the cache does not show yet, or that is gone again
	}
	if err != nil {
		return nil, fmt.Errorf("creating the copy: %w", err)
	}
	c.writes.WroteAt(name, secretResource, created.ResourceVersion)
	return alteredIn(want, created), nil
}

// requireFree returns errTaken if there is a Secret of that name that is not a copy. It
// reads no data. It lists rather than gets, which would need another permission.
func (c *Controller) requireFree(ctx context.Context, name cache.ObjectName) error {
	secrets := c.metadata.Resource(corev1.SchemeGroupVersion.WithResource(secretResource.Resource)).Namespace(name.Namespace)
	found, err := secrets.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String()})
	if err != nil {
		return fmt.Errorf("looking for a Secret of that name: %w", err)
	}
	for _, other := range found.Items {
		if other.Labels[LabelSourceNamespace] != c.config.SourceNamespace {
			return errTaken
		}
	}
	return nil
}

// update corrects a copy. The UID and the resource version in want protect whatever has
// changed since, and another Secret of the same name.
func (c *Controller) update(ctx context.Context, name cache.ObjectName, want *corev1.Secret) (altered []string, err error) {
	updated, err := c.secrets(name.Namespace).Update(ctx, want, metav1.UpdateOptions{FieldManager: fieldManager})
	if err != nil {
		return nil, fmt.Errorf("updating the copy: %w", err)
	}
	c.writes.WroteAt(name, secretResource, updated.ResourceVersion)
	return alteredIn(want, updated), nil
}

// delete deletes a copy if it is still as the cache shows it.
func (c *Controller) delete(ctx context.Context, old *corev1.Secret) error {
	err := c.secrets(old.Namespace).Delete(ctx, old.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &old.UID, ResourceVersion: &old.ResourceVersion},
	})
	if err != nil {
		return fmt.Errorf("deleting the copy: %w", err)
	}
	return nil
}
