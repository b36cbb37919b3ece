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
	fmt.Printf("write Deployment %s with %d replica\n", plan.Want.Name, *plan.Want.Spec.Replicas)
	status, _ := icecream.Status(observed, plan)
	for _, c := range status.Conditions {
		fmt.Println(c.Type, c.Status, c.Reason)
	}
	// Output:
	// write Deployment vanilla with 1 replica
	// Ready False Progressing
	// Reconciling True Progressing
	// Stalled False Progressing
}
