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

	"nicoleh.io/k8s-controller/pkg/kit/leader"
)

// A process that works only while it leads. The example is not run: it needs a cluster.
func Example() {
	cluster := &rest.Config{Host: "https://parlor.example:6443"}
	election, err := leader.New(config.LeaderElectionConfiguration{
		LeaseDuration:     metav1.Duration{Duration: 15 * time.Second},
		RenewDeadline:     metav1.Duration{Duration: 10 * time.Second},
		RetryPeriod:       metav1.Duration{Duration: 2 * time.Second},
		ResourceLock:      "leases",
		ResourceNamespace: "parlor",
		ResourceName:      "shop",
	}, cluster)
	if err != nil {
		fmt.Println(err)
		return
	}
	election.Fence(cluster) // clients that are made from now on write only while this process leads
	client := kubernetes.NewForConfigOrDie(cluster)
	err = election.Run(context.Background(), func(ctx context.Context) error {
		return client.CoreV1().Pods("parlor").Delete(ctx, "melted", metav1.DeleteOptions{})
	})
	if errors.Is(err, leader.ErrLost) {
		os.Exit(1) // the work can still be running
	}
}
