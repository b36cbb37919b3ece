package main

import (
	"context"
	"io"
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

func TestMain(m *testing.M) {
	// The default handlers also pace errors by the time since the last one, and the clock of a
	// synctest bubble is decades away from the one outside.
	utilruntime.ErrorHandlers = nil
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	goleak.VerifyTestMain(m)
}

// Each story in testdata/stories is a promise, which its name says. The controller that ships plays it;
// see package script for the commands. After an edit, run it with -rewrite.
func TestStories(t *testing.T) {
	script.Theater{
		Kinds: []apiserver.Kind{icecreamKind},
		Show:  script.ReadShow(t, "testdata/show.yaml"),
		Start: startController,
	}.Play(t, "testdata/stories")
}

// startController runs the controller as the program does.
func startController(t *testing.T, config *rest.Config, recorder record.EventRecorder) (stop func()) {
	t.Helper()
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	d := &manager.Dependencies{Kube: kube, Config: config, Recorder: recorder}
	c, err := NewDescriptor().New(d)
	if err != nil {
		t.Fatal(err)
	}
	return script.Run(t, func(ctx context.Context) error {
		defer d.StartCaches(ctx, c)()
		return c.Run(ctx, 2)
	})
}
