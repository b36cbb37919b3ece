package text_test

import (
	"fmt"

	"nicoleh.io/k8s-controller/pkg/kit/text"
)

func Example() {
	fmt.Println(text.Clip("crème brûlée", 10))
	// Output: crème br
}
