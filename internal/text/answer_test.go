package text_test

import (
	"fmt"
	"time"

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

func ExampleTime() {
	for _, value := range []string{"2026-07-01T12:00:00Z", "2026-07-01t14:00:00.5+02:00", "2026-07-01 12:00", "", "true"} {
		at, isTime := text.Time(value)
		fmt.Printf("%q: %s, %t\n", value, at.UTC().Format(time.TimeOnly), isTime)
	}
	// Output:
	// "2026-07-01T12:00:00Z": 12:00:00, true
	// "2026-07-01t14:00:00.5+02:00": 12:00:00, true
	// "2026-07-01 12:00": 00:00:00, false
	// "": 00:00:00, false
	// "true": 00:00:00, false
}
