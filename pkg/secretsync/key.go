package secretsync

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// keyField is where HashKey has the key.
const keyField = "key"

// errUnseen says that a cache does not show yet what there must be.
var errUnseen = errors.New("waiting for a cache to show")

// hashKey is the key of content hashes, which is made when it is first needed.
func (c *Controller) hashKey(ctx context.Context) ([]byte, error) {
	c.making.Lock()
	defer c.making.Unlock()
	name := cache.NewObjectName(c.config.SourceNamespace, HashKey)
	if err := c.keyWrites.EnsureReady(name); err != nil {
		return nil, fmt.Errorf("%w the key of content hashes: %w", errUnseen, err)
	}
	secret, err := found(c.sources.Lister().Secrets(name.Namespace).Get(name.Name))
	switch {
	case err != nil:
		return nil, err
	case secret != nil && len(secret.Data[keyField]) == 0:
		return nil, worker.Terminal(fmt.Errorf("the Secret %s has no field %q with the key of content hashes: delete it, and it is made anew", name, keyField))
	case secret != nil:
		return secret.Data[keyField], nil
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
	made, err := c.kube.CoreV1().Secrets(name.Namespace).Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		return nil, discreet(fmt.Errorf("making the key of content hashes: %w", err), want)
	}
	c.keyWrites.WroteAt(name, secretResource, made.ResourceVersion)
	return key, nil
}
