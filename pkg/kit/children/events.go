package children

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kit/apply"
	"nicoleh.io/k8s-controller/pkg/kit/text"
)

// MaxNote is how long an event's note may be, in bytes (events.k8s.io/v1).
const MaxNote = 1024

// Event is one to be recorded about an owner.
type Event struct {
	Type   string // corev1.EventTypeNormal or corev1.EventTypeWarning
	Reason string
	Action string // what the controller was doing
	Note   string
	// IsWrite: it reports what was written, rather than a change of the status.
	IsWrite bool
	// IsApart: it is recorded by itself, as warnings are.
	IsApart bool
	// Log is what the log says about it; nil for nothing.
	Log *Line
}

// Line is a line of a log: a constant message, and keys and values.
type Line struct {
	Message string
	Values  []any
}

// WriteEvent returns an event about what was written.
func WriteEvent(reason, action, note string, args ...any) Event {
	event := StatusEvent(corev1.EventTypeNormal, reason, action, fmt.Sprintf(note, args...))
	event.IsWrite = true
	return event
}

// StatusEvent returns an event about a change of the status.
func StatusEvent(eventType, reason, action, note string) Event {
	return Event{Type: eventType, Reason: reason, Action: action, Note: text.Clip(note, MaxNote)}
}

// Merge returns the events as they are to be recorded: all normal ones as one, which has the
// reason and the action of the last and the notes of all, and behind it those that stand
// apart.
func Merge(events []Event) (merged []Event) {
	var one Event
	var notes []string
	for _, e := range events {
		if e.IsApart || e.Type != corev1.EventTypeNormal {
			merged = append(merged, e)
			continue
		}
		notes = append(notes, e.Note)
		e.Log = cmp.Or(e.Log, one.Log)
		one = e
	}
	if len(notes) == 0 {
		return merged
	}
	one.Note = text.Clip(strings.Join(notes, "; "), MaxNote)
	return append([]Event{one}, merged...)
}

// Events returns what to record about the child that was written, in the order in which it
// came about. need is what was seen before.
func (r Rules) Events(need Need, d Decision, out Outcome) (recorded []Event) {
	written := out.written()
	if written == nil {
		return nil
	}
	drift := r.StoredDrift(d, out)
	isOld := need.Live != nil && len(drift) > 0 && fingerprintOf(drift) == fingerprintOf(d.Drift())
	switch {
	case need.Live == nil:
		recorded = append(recorded, WriteEvent(r.Reasons.Created, "Create", "Created %s %q", need.Kind, written.GetName()))
	case !need.IsOwned:
		recorded = append(recorded, WriteEvent(r.Reasons.Adopted, "Adopt", "Adopted %s %q", need.Kind, written.GetName()))
	case need.Live.GetResourceVersion() != written.GetResourceVersion() && !isOld:
		recorded = append(recorded, WriteEvent(r.Reasons.Updated, "Update", "Updated %s %q", need.Kind, written.GetName()))
	}
	if len(drift) > 0 && !isOld {
		e := WriteEvent(r.Reasons.Altered, "Update", "%s", altered(need.Kind, written, drift))
		e.IsApart = true
		recorded = append(recorded, e)
	}
	return recorded
}

// altered says in what the API server has stored a child otherwise than it was
// requested to.
func altered(kind string, written metav1.Object, drift []apply.Difference) string {
	var fields []string
	for _, f := range drift {
		fields = append(fields, fmt.Sprintf("%s is %s instead of %s", f.Field, inWords(f.Live), inWords(f.Want)))
	}
	return fmt.Sprintf("The API server stored %s %q otherwise than requested, by an admission policy or webhook: %s", kind, written.GetName(), strings.Join(fields, "; "))
}

// maxValue is how many bytes of a value are shown in a sentence.
const maxValue = 120

func inWords(value any) string {
	if value == nil {
		return "nothing"
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return "something" // a value from JSON: never
	}
	return text.Clip(string(raw), maxValue)
}
