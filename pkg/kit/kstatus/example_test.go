package kstatus_test

import (
	"fmt"
	"time"

	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
)

func Example() {
	var history kstatus.History
	for _, seconds := range []int64{0, 30, 60} {
		now := time.Unix(seconds, 0)
		history = history.Notice(kstatus.Sight{
			Now:     now,
			Problem: kstatus.Problem{Reason: "ImagePullBackOff", Message: "no such image", Patience: time.Minute},
		})
		conclusion, _ := history.Conclude(now)
		fmt.Println(conclusion.State, conclusion.Reason, history.RequeueAfter(now, time.Minute))
	}
	// Output:
	// Reconciling ImagePullBackOff 1m0s
	// Reconciling ImagePullBackOff 30s
	// Stalled ImagePullBackOff 0s
}
