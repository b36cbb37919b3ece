package events_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
)

// server is an API server for events. It is reached without a network, so that it can be in
// a bubble.
type server struct {
	mu     sync.Mutex
	events map[string]*eventsv1.Event // by path
	made   []string                   // their paths, in the order of creation
	asked  int                        // requests that have arrived
	fail   func(asked int) failure    // of a request; nil or a nil failure is none
}

// failure happens instead of a response. It may let the server carry out the request.
type failure func(r *http.Request, act func() *http.Response) (*http.Response, error)

// away is a server that cannot be reached.
func away(*http.Request, func() *http.Response) (*http.Response, error) {
	return nil, errors.New("connect: connection refused")
}

// lost is a response that does not arrive.
func lost(_ *http.Request, act func() *http.Response) (*http.Response, error) {
	act()
	return nil, io.ErrUnexpectedEOF
}

// hang is a server that does not answer.
func hang(r *http.Request, _ func() *http.Response) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// refuse returns a failure that responds with a status.
func refuse(code int32, reason metav1.StatusReason, causes ...metav1.CauseType) failure {
	status := failed(code, reason, "no")
	for _, cause := range causes {
		status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{Type: cause})
	}
	return func(r *http.Request, _ func() *http.Response) (*http.Response, error) {
		return answer(r, int(code), status), nil
	}
}

var (
	forbidden   = refuse(http.StatusForbidden, metav1.StatusReasonForbidden)
	invalid     = refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	throttled   = refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
	broken      = refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	unavailable = refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	tooLate     = refuse(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
	gone        = refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
	terminating = refuse(http.StatusForbidden, metav1.StatusReasonForbidden, corev1.NamespaceTerminatingCause)
)

// first makes the first requests fail in these ways; later ones succeed.
func first(failures ...failure) func(int) failure {
	return func(asked int) failure {
		if asked > len(failures) {
			return nil
		}
		return failures[asked-1]
	}
}

// always makes every request fail in that way.
func always(f failure) func(int) failure { return func(int) failure { return f } }

func newServer() *server { return &server{events: map[string]*eventsv1.Event{}} }

func (s *server) client(t *testing.T) eventsclient.EventsV1Interface {
	t.Helper()
	config := &rest.Config{Host: "http://server", QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	return client.EventsV1()
}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.asked++
	var f failure
	if s.fail != nil {
		f = s.fail(s.asked)
	}
	s.mu.Unlock()
	if f != nil {
		return f(r, func() *http.Response { return s.act(r) })
	}
	return s.act(r), nil
}

func (s *server) act(r *http.Request) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return answer(r, http.StatusBadRequest, failed(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error()))
	}
	event, path, code := &eventsv1.Event{}, r.URL.Path, http.StatusOK
	switch {
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == string(types.MergePatchType):
		if s.events[path] == nil {
			return answer(r, http.StatusNotFound, failed(http.StatusNotFound, metav1.StatusReasonNotFound, "is not there"))
		}
		event = s.events[path].DeepCopy()
		err = json.Unmarshal(body, event)
		if event.Series == nil || event.Series.Count < 2 || event.Series.LastObservedTime.IsZero() {
			err = errors.Join(err, errors.New("not a valid series"))
		}
	case r.Method == http.MethodPost:
		err = errors.Join(json.Unmarshal(body, event), validate(event))
		path, code = path+"/"+event.Name, http.StatusCreated
		if s.events[path] != nil {
			return answer(r, http.StatusConflict, failed(http.StatusConflict, metav1.StatusReasonAlreadyExists, "is there already"))
		}
		if r.URL.Path != "/apis/events.k8s.io/v1/namespaces/"+event.Namespace+"/events" {
			err = errors.Join(err, fmt.Errorf("namespace %s does not belong to %s", event.Namespace, r.URL.Path))
		}
	default:
		err = fmt.Errorf("%s is not for events", r.Method)
	}
	if err != nil {
		return answer(r, http.StatusUnprocessableEntity, failed(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error()))
	}
	if s.events[path] == nil {
		s.made = append(s.made, path)
	}
	s.events[path] = event
	return answer(r, code, event)
}

// validate checks what the API server checks (validateV1EventSeries and its
// neighbors in pkg/apis/core/validation/events.go of Kubernetes).
func validate(e *eventsv1.Event) error {
	var errs []error
	for _, text := range validation.IsDNS1123Subdomain(e.Name) {
		errs = append(errs, fmt.Errorf("name %q: %s", e.Name, text))
	}
	for _, text := range validation.IsQualifiedName(e.ReportingController) {
		errs = append(errs, fmt.Errorf("reportingController %q: %s", e.ReportingController, text))
	}
	if e.EventTime.IsZero() || e.Reason == "" || e.Action == "" || e.ReportingInstance == "" {
		errs = append(errs, errors.New("a field is missing"))
	}
	if len(e.Note) > 1024 || len(e.ReportingInstance) > 128 {
		errs = append(errs, errors.New("a field is too long"))
	}
	if !utf8.ValidString(e.Note) || strings.ContainsRune(e.Note, utf8.RuneError) {
		errs = append(errs, errors.New("the note is not text"))
	}
	if e.Regarding.Namespace != e.Namespace && (e.Regarding.Namespace != "" || e.Namespace != metav1.NamespaceDefault) {
		errs = append(errs, errors.New("regarding is in another namespace"))
	}
	return errors.Join(errs...)
}

func failed(code int32, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure,
		Code:     code,
		Reason:   reason,
		Message:  message,
		Details:  &metav1.StatusDetails{},
	}
}

func answer(r *http.Request, code int, body any) *http.Response {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return &http.Response{
		StatusCode: code,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(bytes.NewReader(text)),
		Request:    r,
	}
}

// setFail makes requests fail from now on.
func (s *server) setFail(fail func(int) failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// expire forgets every event, as the API server does after an hour.
func (s *server) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events, s.made = map[string]*eventsv1.Event{}, nil
}

// all returns the events that exist, in the order of creation.
func (s *server) all() []eventsv1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []eventsv1.Event
	for _, path := range s.made {
		all = append(all, *s.events[path])
	}
	return all
}

// recorded returns the notes and counts of all events, such as "melts ×2", in the order of
// creation.
func (s *server) recorded() []string {
	var recorded []string
	for _, e := range s.all() {
		count := int32(1)
		if e.Series != nil {
			count = e.Series.Count
		}
		recorded = append(recorded, fmt.Sprintf("%s ×%d", e.Note, count))
	}
	return recorded
}

// recordedOf returns the same by object.
func (s *server) recordedOf() map[string][]string {
	of := map[string][]string{}
	for i, e := range s.all() {
		of[e.Regarding.Name] = append(of[e.Regarding.Name], s.recorded()[i])
	}
	return of
}

func (s *server) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// objects returns the names of the objects that have events.
func (s *server) objects() []string { return slices.Sorted(maps.Keys(s.recordedOf())) }
