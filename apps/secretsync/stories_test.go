package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(ctx context.Context, err error, msg string, _ ...any) {
		klog.FromContext(ctx).Error(err, msg)
	}}
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	goleak.VerifyTestMain(m)
}

// marker is part of every value of every source, and must not be disclosed.
const marker = "hunter2"

// markers are what a value looks like: as base64, as it is, and as package fmt prints bytes.
var markers = []string{marker, "\x86\xe9\xed", "134 233 237"}

// Each story in testdata/stories is a promise, which its name says, and none tells what a Secret contains. See package
// script for the commands. After an edit, run it with -rewrite.
func TestStories(t *testing.T) {
	script.Theater{
		Kinds: []apiserver.Kind{apiserver.Secrets()},
		Show:  script.ReadShow(t, "testdata/show.yaml"),
		Start: func(t *testing.T, config *rest.Config, recorder record.EventRecorder) (stop func()) {
			t.Helper()
			_, stop = startController(t, config, recorder)
			return stop
		},
	}.Play(t, "testdata/stories")
}

// startController runs the controller as the program does, and checks what it tells.
func startController(t *testing.T, config *rest.Config, recorder record.EventRecorder) (c *Controller, stop func()) {
	t.Helper()
	d := &manager.Dependencies{Kube: kubernetes.NewForConfigOrDie(config), Config: config, Recorder: discreet{recorder, t}}
	made, err := newController("secretsync", d)
	if err != nil {
		t.Fatal(err)
	}
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(6)))
	end := script.Run(t, func(ctx context.Context) error {
		ctx = klog.NewContext(ctx, logger)
		defer d.StartCaches(ctx, made)()
		return made.Run(ctx, 3)
	})
	return made.(*Controller), func() {
		end()
		requireNoSecret(t, "the log", logger.GetSink().(ktesting.Underlier).GetBuffer().String())
	}
}

// discreet is a recorder of events, which must not contain a Secret.
type discreet struct {
	record.EventRecorder
	t *testing.T
}

func (d discreet) Event(about runtime.Object, kind, reason, message string) {
	requireNoSecret(d.t, "an event", fmt.Sprint(message, about))
	d.EventRecorder.Event(about, kind, reason, message)
}

// requireNoSecret requires that no text contains a value of a source.
func requireNoSecret(t *testing.T, what, text string) {
	t.Helper()
	for _, marker := range markers {
		if before, _, isTold := strings.Cut(text, marker); isTold {
			t.Errorf("%s holds a secret behind %q", what, before[max(0, len(before)-200):])
		}
	}
}
