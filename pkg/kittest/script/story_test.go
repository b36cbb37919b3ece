package script_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

// The stories of a small controller, which lets no Deployment have fewer than two replicas.
func TestStories(t *testing.T) {
	script.Theater{
		Show:  map[string]string{"Deployment": "{.spec.replicas} replicas, {.status.availableReplicas} available"},
		Start: start,
	}.Play(t, "testdata/stories")
}

func start(t *testing.T, config *rest.Config, recorder record.EventRecorder) (stop func()) {
	t.Helper()
	deployments := kubernetes.NewForConfigOrDie(config).AppsV1().Deployments(script.Namespace)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(time.Second) {
			all, err := deployments.List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for i := range all.Items {
				d := &all.Items[i]
				if *d.Spec.Replicas > 1 {
					continue
				}
				_, err := deployments.Patch(ctx, d.Name, types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{})
				if err != nil {
					recorder.Event(d, corev1.EventTypeWarning, "NotScaled", fmt.Sprint(err))
				} else {
					recorder.Event(d, corev1.EventTypeNormal, "Scaled", "")
				}
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}
