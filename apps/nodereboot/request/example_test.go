package request_test

import (
	"fmt"
	"time"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
)

func ExampleTime() {
	for _, value := range []string{"2026-07-01T12:00:00Z", "2026-07-01t14:00:00.5+02:00", "2026-07-01 12:00", "", "true"} {
		at, isTime := request.Time(value)
		fmt.Printf("%q: %s, %t\n", value, at.UTC().Format(time.TimeOnly), isTime)
	}
	// Output:
	// "2026-07-01T12:00:00Z": 12:00:00, true
	// "2026-07-01t14:00:00.5+02:00": 12:00:00, true
	// "2026-07-01 12:00": 00:00:00, false
	// "": 00:00:00, false
	// "true": 00:00:00, false
}
