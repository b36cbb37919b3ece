package footprint_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/footprint"
)

func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	go footprint.Reduce(ctx, clock.RealClock{})
	fmt.Println("everything else that the process does")
	// Output: everything else that the process does
}
