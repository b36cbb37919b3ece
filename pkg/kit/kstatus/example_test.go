package kstatus_test

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
)

// An object has a problem. It is Stalled when there was no progress for ten minutes.
func Example() {
	start := time.Now()
	sight := kstatus.Sight{
		Now:        start,
		Generation: 1,
		Problem:    kstatus.Problem{Reason: "Unschedulable", Message: "no node fits"},
		Recurs:     func(string) bool { return false },
	}
	history := kstatus.History{}.Notice(sight)
	fmt.Println("left:", history.Left(start.Add(time.Minute), 10*time.Minute))

	state := kstatus.Reconciling
	if history.Left(start.Add(11*time.Minute), 10*time.Minute) == 0 {
		state = kstatus.Stalled
	}
	var conditions []metav1.Condition
	kstatus.Conclusion{State: state, Reason: sight.Problem.Reason, Message: sight.Problem.Message}.SetOn(&conditions, 1, start)
	for _, c := range conditions {
		fmt.Println(c.Type, c.Status, c.Reason)
	}
	// Output:
	// left: 9m0s
	// Ready False Unschedulable
	// Reconciling False Unschedulable
	// Stalled True Unschedulable
}
