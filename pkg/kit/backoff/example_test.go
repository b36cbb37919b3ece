package backoff_test

import (
	"fmt"

	"nicoleh.io/k8s-controller/pkg/kit/backoff"
)

func Example() {
	for count := 1; count <= 6; count++ {
		fmt.Printf("after %d writes, wait %s\n", count, backoff.Delay(count))
	}
	// Output:
	// after 1 writes, wait 0s
	// after 2 writes, wait 0s
	// after 3 writes, wait 5s
	// after 4 writes, wait 10s
	// after 5 writes, wait 20s
	// after 6 writes, wait 40s
}
