package leader_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/config"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/leader"
)

// A process that works only while it leads. (This example needs a cluster, so it is only
// compiled.)
func Example() {
	cluster := &rest.Config{Host: "https://parlor.example:6443"}
	lease, err := leader.NewClient(cluster)
	if err != nil {
		fmt.Println(err)
		return
	}
	election, err := leader.New(config.LeaderElectionConfiguration{
		LeaderElect:       true,
		LeaseDuration:     metav1.Duration{Duration: 15 * time.Second},
		RenewDeadline:     metav1.Duration{Duration: 10 * time.Second},
		RetryPeriod:       metav1.Duration{Duration: 2 * time.Second},
		ResourceLock:      "leases",
		ResourceNamespace: "parlor",
		ResourceName:      "shop",
	}, lease, clock.RealClock{})
	if err != nil {
		fmt.Println(err)
		return
	}
	election.Fence(cluster) // the writes of clients that are made from now on fail unless this process leads
	client := kubernetes.NewForConfigOrDie(cluster)
	err = election.Run(context.Background(), func(ctx context.Context) error {
		return client.CoreV1().Pods("parlor").Delete(ctx, "melted", metav1.DeleteOptions{})
	})
	if errors.Is(err, leader.ErrLost) {
		os.Exit(1) // the work may still be running
	}
}
