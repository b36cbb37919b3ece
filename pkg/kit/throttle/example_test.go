package throttle_test

import (
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"nicoleh.io/k8s-controller/pkg/kit/throttle"
)

// A report on progress soon after another has to wait; an urgent one does not.
func Example() {
	clock := testingclock.NewFakeClock(time.Now())
	wake := func(name cache.ObjectName, after time.Duration) { fmt.Println("sync", name, "in", after) }
	limiter := throttle.New(2*time.Second, clock, wake)
	vanilla := cache.NewObjectName("parlor", "vanilla")

	limiter.Reported(vanilla) // the status was written
	fmt.Println(limiter.AllowReport(vanilla))
	fmt.Println(limiter.AllowUrgent(vanilla))

	clock.Step(2 * time.Second)
	fmt.Println(limiter.AllowReport(vanilla))
	// Output:
	// sync parlor/vanilla in 2s
	// false
	// true
	// true
}
