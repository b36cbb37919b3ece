package children

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outdated is a version of an owner that has changed, as a conflict has said. Nothing needs
// to be decided about it until the cache shows another one, or has had all the time that it
// needs. The zero value is none.
type Outdated struct {
	Version string
	Until   time.Time
}

// NewOutdated returns that of an owner whose write has met with a conflict.
func NewOutdated(owner metav1.Object, now time.Time) Outdated {
	return Outdated{owner.GetResourceVersion(), now.Add(time.Minute)}
}

// Is reports whether the owner is of the version that has changed.
func (o Outdated) Is(owner metav1.Object, now time.Time) bool {
	return owner.GetResourceVersion() == o.Version && now.Before(o.Until)
}
