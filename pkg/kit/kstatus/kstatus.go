// Package kstatus sets the conditions Ready, Reconciling and Stalled of an object. Exactly one of them is True, as
// kstatus expects (https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus). The package is pure: no
// client, no clock, no log.
package kstatus

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/internal/text"
)

// maxMessage limits the message of a condition, in bytes.
const maxMessage = 1024

// State is the type of the condition that is True.
type State string

// The three states of an object.
const (
	Ready       State = "Ready"       // all is as the spec asks for
	Reconciling State = "Reconciling" // it is expected to become Ready by itself
	Stalled     State = "Stalled"     // it is not, unless someone intervenes
)

// States returns all three.
func States() []State { return []State{Ready, Reconciling, Stalled} }

// Conclusion is what the three conditions say together.
type Conclusion struct {
	State   State
	Reason  string
	Message string
}

// SetOn sets the three conditions of an object of that generation. A condition whose status does
// not change keeps its lastTransitionTime.
func (c Conclusion) SetOn(conditions *[]metav1.Condition, generation int64, now time.Time) {
	for _, state := range States() {
		set := metav1.Condition{
			Type:               string(state),
			Status:             metav1.ConditionFalse,
			ObservedGeneration: generation,
			LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
			Reason:             c.Reason,
		}
		if c.State == state {
			set.Status = metav1.ConditionTrue
		}
		if c.State == state || state == Ready {
			set.Message = text.Clip(c.Message, maxMessage)
		}
		meta.SetStatusCondition(conditions, set)
	}
}

// Progressing is the reason of a Ready condition that is false although nothing is wrong.
const Progressing = "Progressing"
