package events_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/events"
)

// Eventf never blocks. Run writes the rest of the events when it stops.
func Example() {
	client := fake.NewClientset()
	recorder := events.New(client.EventsV1().Events, kubescheme.Scheme, clock.RealClock{})
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- recorder.Run(ctx, 1) }()

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "parlor", Name: "vanilla"}}
	cones := recorder.For("cone-controller")
	cones.Eventf(pod, nil, corev1.EventTypeWarning, "Melting", "Serve", "%d degrees", 25)

	cancel()
	if err := <-stopped; err != nil {
		fmt.Println(err)
	}
	list, err := client.EventsV1().Events("parlor").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, event := range list.Items {
		fmt.Println(event.ReportingController, event.Regarding.Name, event.Reason, event.Note)
	}
	// Output: cone-controller vanilla Melting 25 degrees
}
