package script_test

import (
	"context"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

// A test plays the stories in a directory. This controller does nothing. The tests of examples/database start one as
// its program does.
func ExampleTheater() {
	var t *testing.T // of the test
	script.Theater{
		Kinds: []apiserver.Kind{apiserver.StatefulSets()},
		Show:  map[string]string{"StatefulSet": "{.spec.replicas} replicas"},
		Start: func(t *testing.T, _ *rest.Config, _ record.EventRecorder) (stop func()) {
			t.Helper()
			_, cancel := context.WithCancel(t.Context())
			return cancel
		},
	}.Play(t, "testdata/stories")
}
