package icecream_test

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
)

// An Icecream is new, and the caches show no Deployment of its name.
func Example() {
	observed := icecream.Observed{
		Now:      time.Now(),
		Icecream: &v1alpha1.Icecream{ObjectMeta: metav1.ObjectMeta{Namespace: "parlor", Name: "vanilla", UID: "1", Generation: 1}},
	}
	plan := icecream.Decide(observed)
	fmt.Println("apply:", plan.Apply != nil)
	status, _ := icecream.Status(observed, plan)
	for _, c := range status.Conditions {
		fmt.Println(c.Type, c.Status, c.Reason)
	}
	// Output:
	// apply: true
	// Ready False Progressing
	// Reconciling True Progressing
	// Stalled False Progressing
}
