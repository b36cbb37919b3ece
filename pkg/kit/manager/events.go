package manager

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"nicoleh.io/k8s-controller/internal/text"
)

const (
	// flushTimeout is how long the last events of a term may take.
	flushTimeout = 2 * time.Second
	// requestTimeout is how long the API server may take for one event.
	requestTimeout = 10 * time.Second
)

// recorder records the events of one controller. client-go's broadcaster queues them in
// order, counts repetitions, limits them for each object, and drops what its queue has no
// room for. A controller's events are never lost because of another controller.
type recorder struct {
	record.EventBroadcaster
	scheme *runtime.Scheme
	sink   record.EventSink
}

func newRecorder(config *rest.Config, scheme *runtime.Scheme) (*recorder, error) {
	config = named(config, "events")
	config.Timeout = requestTimeout // An event that hangs holds up all later ones.
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	broadcaster := record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{SpamKeyFunc: spamKey}))
	return &recorder{broadcaster, scheme, &typedcorev1.EventSinkImpl{Interface: kube.CoreV1().Events("")}}, nil
}

// spamKey says which events share a limit: events with one reason about one object. By default, all events about an
// object share it, and many normal ones can then suppress a warning.
func spamKey(e *corev1.Event) string {
	return strings.Join([]string{e.Source.Component, e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name, string(e.InvolvedObject.UID), e.Type, e.Reason}, "/")
}

// recorderFor returns a recorder that records events in the name of a controller.
func (r *recorder) recorderFor(controller string) record.EventRecorder {
	return clipping{r.NewRecorder(r.scheme, corev1.EventSource{Component: controller})}
}

// maxMessage limits the message of an event, in bytes, as events.k8s.io does. It can quote
// what others wrote.
const maxMessage = 1024

// clipping is a recorder that clips messages.
type clipping struct{ record.EventRecorder }

// Event implements record.EventRecorder.
func (c clipping) Event(object runtime.Object, eventType, reason, message string) {
	c.EventRecorder.Event(object, eventType, reason, text.Clip(message, maxMessage))
}

// Eventf implements record.EventRecorder.
func (c clipping) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	c.Event(object, eventType, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf implements record.EventRecorder.
func (c clipping) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventType, reason, format string, args ...any) {
	c.EventRecorder.AnnotatedEventf(object, annotations, eventType, reason, "%s", text.Clip(fmt.Sprintf(format, args...), maxMessage))
}

// start starts sending events. stop ends that once all recorded events have been sent, or after two seconds.
func (r *recorder) start() (stop func()) {
	last := marker{r.sink, make(chan struct{})}
	r.StartRecordingToSink(last)
	return func() {
		r.recorderFor("").Event(&corev1.ObjectReference{Kind: flush}, corev1.EventTypeNormal, flush, flush)
		select {
		case <-last.arrived:
		case <-time.After(flushTimeout):
		}
		r.Shutdown()
	}
}

// flush is the reason of an event that is never sent: the broadcaster does not flush when
// it shuts down, so this one follows all others through its queue.
const flush = "Flush"

// marker is a sink that notices when that event arrives.
type marker struct {
	record.EventSink
	arrived chan struct{}
}

// Create implements record.EventSink.
func (m marker) Create(event *corev1.Event) (*corev1.Event, error) {
	if event.Reason == flush {
		close(m.arrived)
		return event, nil
	}
	return m.EventSink.Create(event)
}
