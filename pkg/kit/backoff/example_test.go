package backoff_test

import (
	"fmt"
	"time"

	"nicoleh.io/k8s-controller/pkg/kit/backoff"
)

func ExampleMinRequeue() {
	settle, deadline := 30*time.Second, time.Duration(0) // there is no deadline
	fmt.Println(backoff.MinRequeue(settle, deadline))
	// Output: 30s
}
