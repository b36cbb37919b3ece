package text_test

import (
	"fmt"

	"nicoleh.io/k8s-controller/internal/text"
)

func ExampleAnswer() {
	for _, value := range []string{"", "true", "On", "no", "False", "0", "maybe", "2026-07-01T12:00:00Z"} {
		isYes, isClear := text.Answer(value)
		fmt.Printf("%q: %t, %t\n", value, isYes, isClear)
	}
	// Output:
	// "": true, true
	// "true": true, true
	// "On": true, true
	// "no": false, true
	// "False": false, true
	// "0": false, true
	// "maybe": false, false
	// "2026-07-01T12:00:00Z": false, false
}
