package secretsync

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// HashKey is the name of the Secret in the source namespace that holds the key of content
// hashes, in its field "key". It is never copied.
//
// Someone who sees a copy's metadata, for example in a dashboard or in a dump without
// data, could find a short password by trying which one has that hash. A salt stored next
// to the hash would not prevent that. So the hash has a key, and the key is guarded as
// well as the sources: whoever can read it needs no hash.
const HashKey = "secretsync-hash-key"

// keyField is the field of HashKey with the key.
const keyField = "key"

// errNotCached means that a cache does not show something yet that must exist.
var errNotCached = errors.New("waiting for a cache to show")

// errEnding means that the source namespace is being deleted, and with it the key.
var errEnding = fmt.Errorf("%w that the source namespace is no longer being deleted", errNotCached)

// hashKey returns the key of content hashes, and creates it in sourceNS when it is first
// needed.
func (c *Controller) hashKey(ctx context.Context, sourceNS *corev1.Namespace) ([]byte, error) {
	c.keyMu.Lock()
	defer c.keyMu.Unlock()
	name := cache.NewObjectName(c.config.SourceNamespace, HashKey)
	if err := c.keyWrites.EnsureReady(name); err != nil {
		return nil, fmt.Errorf("%w the key of content hashes: %w", errNotCached, err)
	}
	secret := c.sources.Get(name.Namespace, name.Name)
	switch {
	case secret != nil && len(secret.Data[keyField]) == 0:
		return nil, worker.Terminal(fmt.Errorf("the Secret %s has no field %q with the key of content hashes: delete the Secret, and it is re-created", name, keyField))
	case secret != nil:
		return secret.Data[keyField], nil
	case isGone(sourceNS):
		return nil, errEnding
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	want := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
		Immutable:  ptr.To(true),
		Data:       map[string][]byte{keyField: key},
	}
	created, err := c.secrets(name.Namespace).Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil, errEnding
	case err != nil:
		return nil, redact(fmt.Errorf("creating the key of content hashes: %w", err), want)
	}
	c.keyWrites.WroteAt(name, secretResource, created.ResourceVersion)
	return key, nil
}
