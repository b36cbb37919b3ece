package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// arguments are those of a command.
type arguments struct {
	t *testing.T
	d *datadriven.TestData
}

func (a arguments) key(i int) string {
	a.t.Helper()
	if i >= len(a.d.CmdArgs) {
		a.d.Fatalf(a.t, "%s needs another argument", a.d.Cmd)
	}
	return a.d.CmdArgs[i].Key
}

func (a arguments) duration() time.Duration {
	a.t.Helper()
	return a.parse(a.key(0))
}

func (a arguments) durationOf(name string) time.Duration {
	a.t.Helper()
	for _, arg := range a.d.CmdArgs {
		if arg.Key == name {
			return a.parse(arg.Vals[0])
		}
	}
	a.d.Fatalf(a.t, "%s needs %s=DURATION", a.d.Cmd, name)
	return 0
}

func (a arguments) parse(text string) time.Duration {
	a.t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		a.d.Fatalf(a.t, "%v", err)
	}
	return d
}

// begin plays the file of that name in the directory begin beside that of the stories.
func begin(t *testing.T, path string, arg arguments, do func(*datadriven.TestData)) {
	t.Helper()
	datadriven.RunTest(t, filepath.Join(filepath.Dir(path), "..", "begin", arg.key(0)+".txt"), func(_ *testing.T, d *datadriven.TestData) string {
		do(d)
		return d.Expected
	})
}

// documents returns the objects of a command's input.
func documents(t *testing.T, d *datadriven.TestData) (all []*unstructured.Unstructured) {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(d.Input), 1024)
	for {
		obj, raw := &unstructured.Unstructured{}, json.RawMessage{}
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err == nil {
			err = utiljson.Unmarshal(raw, &obj.Object)
		}
		switch {
		case err != nil:
			d.Fatalf(t, "%v", err)
		case len(obj.Object) > 0:
			all = append(all, obj)
		}
	}
}

// setField sets the field of an argument PATH=VALUE, or removes it if there is no value. Labels and annotations are
// always texts.
func setField(t *testing.T, d *datadriven.TestData, of map[string]any, arg datadriven.CmdArg) {
	t.Helper()
	var value any
	if len(arg.Vals) > 0 {
		text := strings.Join(arg.Vals, ", ")
		if value = text; !strings.HasPrefix(arg.Key, "metadata.labels[") && !strings.HasPrefix(arg.Key, "metadata.annotations[") {
			value = parsed(text)
		}
	}
	if !setPath(of, arg.Key, value) {
		d.Fatalf(t, "there is no %s", arg.Key)
	}
}

// parsed reads a value as YAML, with the types that JSON has.
func parsed(text string) (value any) {
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = utiljson.Unmarshal(raw, &value) // Whole numbers are int64, as in all objects.
	}
	if err != nil {
		return text
	}
	return value
}

// steps are the names of a path. A name can have dots and slashes in brackets: metadata.labels[a.b/c].
func steps(path string) (names []string) {
	for path != "" {
		if rest, ok := strings.CutPrefix(path, "["); ok {
			name, after, _ := strings.Cut(rest, "]")
			names, path = append(names, name), strings.TrimPrefix(after, ".")
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			return append(names, path)
		}
		names, path = append(names, path[:end]), strings.TrimPrefix(path[end:], ".")
	}
	return names
}

// fieldOf returns the field at a path; nil if there is none. An element of a list has the name of its
// field name, type or uid, or its number.
func fieldOf(of any, path string) any {
	for _, name := range steps(path) {
		switch at := of.(type) {
		case map[string]any:
			of = at[name]
		case []any:
			i := elementOf(at, name)
			if i < 0 {
				return nil
			}
			of = at[i]
		default:
			return nil
		}
	}
	return of
}

func elementOf(list []any, name string) int {
	for i, element := range list {
		inside, _ := element.(map[string]any)
		if inside["name"] == name || inside["type"] == name || strconv.Itoa(i) == name {
			return i
		}
	}
	return -1
}

// setPath sets the field at a path, or removes it if the value is nil. It returns false if an element of
// a list on the way does not exist, and is not the next one.
func setPath(of map[string]any, path string, value any) bool {
	names := steps(path)
	var at any = of
	put := func(any) {}
	for i, name := range names {
		isLast := i == len(names)-1
		switch inside := at.(type) {
		case map[string]any:
			if isLast {
				if value == nil {
					delete(inside, name)
				} else {
					inside[name] = value
				}
				return true
			}
			if inside[name] == nil {
				inside[name] = map[string]any{}
			}
			at = inside[name]
			put = func(v any) { inside[name] = v }
		case []any:
			n := elementOf(inside, name)
			if name == strconv.Itoa(len(inside)) {
				n, inside = len(inside), append(inside, map[string]any{})
				put(inside)
			}
			if n < 0 {
				return false
			}
			if isLast {
				inside[n] = value
				return true
			}
			at = inside[n]
			put = func(v any) { inside[n] = v }
		default:
			return false
		}
	}
	return false
}

func equalJSON(a, b any) bool {
	first, errA := json.Marshal(a)
	second, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(first, second)
}

// denial is the answer to what a rule denies, as a real API server gives it (package response has the
// table).
func (r rule) denial(a apiserver.Admission) error {
	details := &metav1.StatusDetails{Group: a.Key.Resource.Group, Kind: a.Key.Resource.Resource, Name: a.Key.Name}
	status := func(code int32, reason metav1.StatusReason, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: details}}
	}
	switch r.by {
	case "", "webhook": // which chooses the code, the reason and the details
		reason := map[int32]metav1.StatusReason{
			http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusNotFound: metav1.StatusReasonNotFound,
			http.StatusConflict: metav1.StatusReasonConflict, http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
			http.StatusUnprocessableEntity: metav1.StatusReasonInvalid, http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
		}[r.code]
		return status(max(r.code, http.StatusBadRequest), reason, `admission webhook "webhook.example.com" denied the request: `+r.words)
	case "policy":
		details.Causes = []metav1.StatusCause{{Message: r.words}}
		return status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
			fmt.Sprintf("%s %q is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: %s", a.Key.Resource, a.Key.Name, r.words))
	case "mutating-policy": // which fails
		details.Causes = []metav1.StatusCause{{Message: r.words}}
		return status(http.StatusForbidden, metav1.StatusReasonInvalid, "policy 'p' with binding 'p' denied request: "+r.words)
	case "quota":
		return apierrors.NewForbidden(a.Key.Resource, a.Key.Name, errors.New("exceeded quota: few: "+r.words))
	case "budget": // a PodDisruptionBudget, about an eviction
		details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: r.words}}
		return status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "Cannot evict pod as it would violate the pod's disruption budget.")
	case "validation":
		return apierrors.NewInvalid(a.Object.GetObjectKind().GroupVersionKind().GroupKind(), a.Key.Name, field.ErrorList{field.Invalid(field.NewPath("spec"), nil, r.words)})
	case "etcd":
		return status(http.StatusInternalServerError, "", "etcdserver: "+r.words)
	case "no-webhook": // It cannot be called.
		return apierrors.NewInternalError(errors.New(`failed calling webhook "webhook.example.com": ` + r.words))
	default:
		return status(http.StatusTeapot, "", "there is no denial by "+r.by)
	}
}

const eventPrefix = "event about "

// recorder keeps events.
type recorder struct {
	mu      sync.Mutex
	events  []string
	reasons map[string][]string // the messages with each since the last count
}

// Event implements record.EventRecorder.
func (r *recorder) Event(obj runtime.Object, eventType, reason, message string) {
	name := ""
	if about, err := meta.Accessor(obj); err == nil {
		name = about.GetName()
	} else if about, ok := obj.(*corev1.ObjectReference); ok {
		name = about.Name
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reasons[reason] = append(r.reasons[reason], message)
	r.events = append(r.events, eventPrefix+fmt.Sprintf("%s: %s %s", name, eventType, reason))
}

// Eventf implements record.EventRecorder.
func (r *recorder) Eventf(obj runtime.Object, eventType, reason, format string, args ...any) {
	r.Event(obj, eventType, reason, fmt.Sprintf(format, args...))
}

// count begins to count from zero.
func (r *recorder) count() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.reasons)
}

// messages returns the messages of the events with a reason since the last count.
func (r *recorder) messages(reason string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.reasons[reason])
}

// AnnotatedEventf implements record.EventRecorder.
func (r *recorder) AnnotatedEventf(obj runtime.Object, _ map[string]string, eventType, reason, format string, args ...any) {
	r.Eventf(obj, eventType, reason, format, args...)
}

// take returns the events since it was last called, those about one object in order, and those that were
// repeated once.
func (r *recorder) take() (events []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortStableFunc(r.events, func(a, b string) int {
		before, _, _ := strings.Cut(a, ": ")
		after, _, _ := strings.Cut(b, ": ")
		return strings.Compare(before, after)
	})
	for _, event := range r.events {
		if len(events) == 0 || events[len(events)-1] != event {
			events = append(events, event)
		}
	}
	r.events = nil
	return events
}
