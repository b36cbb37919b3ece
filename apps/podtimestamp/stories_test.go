package main

import (
	"context"
	"io"
	"sync"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
	"nicoleh.io/k8s-controller/pkg/kittest/startup"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // The default handlers sleep, but stories have a clock of their own.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	goleak.VerifyTestMain(m)
}

// Each story in testdata/stories is a promise, which its name says. See package script for the commands. After an edit,
// run it with -rewrite.
func TestStories(t *testing.T) {
	script.Theater{Show: script.ReadShow(t, "testdata/show.yaml"), Start: startController}.Play(t, "testdata/stories")
}

// startController runs the controller as the program does. What is true in every story is checked when it stops: the
// metric counts what the events say, and what is remembered of a Pod ends with it.
func startController(t *testing.T, config *rest.Config, recorder record.EventRecorder) (stop func()) {
	t.Helper()
	told := &events{EventRecorder: recorder}
	d := &manager.Dependencies{Metadata: metadata.NewForConfigOrDie(config), Recorder: told}
	running, err := NewDescriptor().New(d)
	if err != nil {
		t.Fatal(err)
	}
	c, before := running.(*Controller), stamps(t)
	end := script.Run(t, func(ctx context.Context) error {
		defer d.StartCaches(ctx, c)()
		return c.Run(ctx, 2)
	})
	return func() {
		end()
		if got := stamps(t) - before; got != float64(told.stamped) {
			t.Errorf("the metric counts %v timestamps, and there are %d events", got, told.stamped)
		}
		for _, pod := range told.about {
			_, err := c.pods.Namespace(pod.Namespace).Get(pod.Name)
			if last := c.attempts.Last(pod); apierrors.IsNotFound(err) && last.Count > 0 {
				t.Errorf("Pod %s is gone, and still %+v", pod.Name, last)
			}
		}
	}
}

// stamps returns how many timestamps the metric counts.
func stamps(t *testing.T) float64 {
	t.Helper()
	n, err := testutil.GetCounterMetricValue(stampsTotal)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// events notes what is recorded.
type events struct {
	record.EventRecorder
	mu      sync.Mutex
	about   []*metav1.ObjectMeta
	stamped int
}

// Eventf implements record.EventRecorder.
func (e *events) Eventf(obj runtime.Object, eventType, reason, message string, args ...any) {
	pod := obj.(*corev1.ObjectReference)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.about = append(e.about, &metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID})
	if reason == ReasonStamped {
		e.stamped++
	}
	e.EventRecorder.Eventf(obj, eventType, reason, message, args...)
}

func TestStartup(t *testing.T) {
	startup.Test(t, func(ctx context.Context, args []string) error { return newProgram().Run(ctx, args) })
}
