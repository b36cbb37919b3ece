package children

import (
	"crypto/sha256"
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"
)

// Match identifies a version of an object that had nothing to repair, and what it was
// compared with. It is a hash, because a process may remember very many of them. The zero
// value is none.
//
// The version is the resourceVersion: every change of the object, of labels or managed
// fields for example, makes another one. A generation would not do, because many kinds have
// none, and that of a PriorityClass never changes. Nor would the generation of the owner
// instead of its spec: a new default in a CustomResourceDefinition changes the specs of
// objects, but not their generations.
type Match [16]byte

// match returns the Match that Live and From would make; the zero value if there cannot be
// one. It need not include the owner's UID, which Live has in its controller reference.
func (n Need) match() Match {
	if n.From == nil || n.Live.GetResourceVersion() == "" {
		return Match{}
	}
	raw, err := json.Marshal(struct {
		From            any
		UID             types.UID
		ResourceVersion string
	}{n.From, n.Live.GetUID(), n.Live.GetResourceVersion()})
	if err != nil {
		return Match{}
	}
	sum := sha256.Sum256(raw)
	return Match(sum[:])
}
