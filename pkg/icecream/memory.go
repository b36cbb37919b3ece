package icecream

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
)

// Memory is what a process remembers about an Icecream from sync to sync, besides its writes. The
// zero value is the memory of a new process.
type Memory struct {
	UID             types.UID // of the Icecream. Of another one, nothing is remembered.
	kstatus.History           // since when the present problem lasts
	Seen            Seen      // what the status of the Deployment described last
}

// Seen is the last generation of a Deployment that its status described, and a hash of its spec.
type Seen struct {
	UID        types.UID
	Generation int64
	Spec       string
}

// isObserved reports whether the Deployment's status describes its current spec. A change of
// its annotations also raises the generation, and leaves the status true.
func (o Observed) isObserved(d *appsv1.Deployment) bool {
	if d.Status.ObservedGeneration >= d.Generation {
		return true
	}
	seen := Seen{d.UID, d.Generation - 1, hashOfSpec(d)}
	return d.Status.ObservedGeneration == seen.Generation && seen == o.Memory.Seen
}

// lastSeen returns the generation that the status of the Icecream's Deployment describes, or has
// described last.
func (o Observed) lastSeen() Seen {
	d, seen := o.own(), o.Memory.Seen
	if d == nil || d.Status.ObservedGeneration < d.Generation || d.UID == seen.UID && d.Generation == seen.Generation {
		return seen
	}
	return Seen{d.UID, d.Generation, hashOfSpec(d)}
}

func hashOfSpec(d *appsv1.Deployment) string {
	raw, _ := json.Marshal(d.Spec) // cannot fail for what the API server stores
	return hash(raw)
}
