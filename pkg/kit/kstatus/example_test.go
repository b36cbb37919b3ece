package kstatus_test

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
)

// Only an edit can help an object whose spec is invalid.
func Example() {
	var conditions []metav1.Condition
	kstatus.Conclusion{State: kstatus.Stalled, Reason: "InvalidSpec", Message: "no such flavor"}.SetOn(&conditions, 1, time.Now())
	for _, c := range conditions {
		fmt.Println(c.Type, c.Status, c.Reason)
	}
	// Output:
	// Ready False InvalidSpec
	// Reconciling False InvalidSpec
	// Stalled True InvalidSpec
}
