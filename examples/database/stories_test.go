package main

import (
	"context"
	"io"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/examples/database/apis/database/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // The default handlers sleep, but stories have a clock of their own.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	m.Run()
}

// Each story in testdata/stories is a promise, which its name says. See package script for the commands. After an edit,
// run it with -rewrite. The model has no StatefulSet controller: a story edits the status.
func TestStories(t *testing.T) {
	script.Theater{
		Kinds: []apiserver.Kind{
			apiserver.CustomResource(v1alpha1.Resource("databases").WithVersion(v1alpha1.GroupVersion.Version), "Database"),
			apiserver.StatefulSets(),
		},
		Show:  script.ReadShow(t, "testdata/show.yaml"),
		Start: startController,
	}.Play(t, "testdata/stories")
}

// startController runs the controller as the program does.
func startController(t *testing.T, config *rest.Config, recorder record.EventRecorder) (stop func()) {
	t.Helper()
	d := &manager.Dependencies{Kube: kubernetes.NewForConfigOrDie(config), Config: config, Recorder: recorder}
	c, err := NewDescriptor().New(d)
	if err != nil {
		t.Fatal(err)
	}
	return script.Run(t, func(ctx context.Context) error {
		defer d.StartCaches(ctx, c)()
		return c.Run(ctx, 2)
	})
}
