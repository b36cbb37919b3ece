package leader_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/config"

	"nicoleh.io/k8s-controller/internal/leader"
)

// One process of several works, with a client whose writes fail when it no longer leads.
func Example() {
	cluster := &rest.Config{Host: "https://kubernetes.default.svc"}
	election, err := leader.New(config.LeaderElectionConfiguration{
		LeaderElect:       true,
		ResourceLock:      "leases",
		ResourceNamespace: "shop",
		ResourceName:      "shop",
		LeaseDuration:     metav1.Duration{Duration: 15 * time.Second},
		RenewDeadline:     metav1.Duration{Duration: 10 * time.Second},
		RetryPeriod:       metav1.Duration{Duration: 2 * time.Second},
	}, cluster)
	if err != nil {
		fmt.Println(err)
		return
	}
	fenced := rest.CopyConfig(cluster)
	election.Fence(fenced)
	client := kubernetes.NewForConfigOrDie(fenced)

	work := func(ctx context.Context) error {
		return client.CoreV1().Pods("shop").Delete(ctx, "web", metav1.DeleteOptions{})
	}
	if err := election.Run(context.Background(), work); errors.Is(err, leader.ErrLost) {
		fmt.Println("exit now: another process leads")
	}
}
