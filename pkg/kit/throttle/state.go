package throttle

import (
	"time"

	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/snapshot"
)

// State is all that a Limiter remembers. Names are in the format namespace/name. Whatever no
// longer has an effect at the time of the Limiter's clock is left out.
type State struct {
	Objects map[string]ObjectState `json:"objects,omitempty"`
	Reports LineState              `json:"reports,omitzero"`
	Retries LineState              `json:"retries,omitzero"`
}

// ObjectState is what a Limiter remembers of an object.
type ObjectState struct {
	FullAt   time.Time `json:"fullAt,omitzero"`   // when its budget is full again
	Reported time.Time `json:"reported,omitzero"` // when its status was last written, if within a window
	Asked    bool      `json:"asked,omitempty"`   // whether a report that is not urgent was asked for since then
	AskedAt  time.Time `json:"askedAt,omitzero"`  // when that was, if within half a window
}

// LineState is what a Limiter remembers of a line.
type LineState struct {
	FullAt       time.Time            `json:"fullAt,omitzero"`       // when its bucket is full again
	UrgentFullAt time.Time            `json:"urgentFullAt,omitzero"` // when that of urgent writes is
	Queues       [][]PlaceState       `json:"queues,omitempty"`      // one for each namespace; the first is next
	Turns        map[string]time.Time `json:"turns,omitempty"`       // the objects whose turn it is, since when
	FiresAt      time.Time            `json:"firesAt,omitzero"`      // when the line's timer fires, if it is set
}

// PlaceState is an object's place in its queue.
type PlaceState struct {
	Name  string    `json:"name"`
	Since time.Time `json:"since,omitzero"` // when the object joined, if it waits for urgent writes
}

// State returns what the Limiter remembers, for tests that restore it later. Equal states
// have equal JSON.
func (t *Limiter) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	state := State{Objects: map[string]ObjectState{}, Reports: t.reports.state(now), Retries: t.retries.state(now)}
	for name, o := range t.objects {
		object := ObjectState{
			FullAt:   ifAfter(now, 0, o.writes.fullAt),
			Reported: ifAfter(now, t.window, o.reported),
			Asked:    !o.asked.IsZero(),
			AskedAt:  ifAfter(now, t.window/2, o.asked),
		}
		if object != (ObjectState{}) {
			state.Objects[name.String()] = object
		}
	}
	return state
}

// SetState replaces what the Limiter remembers, and sets its timers anew.
func (t *Limiter) SetState(state State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.objects = map[cache.ObjectName]*object{}
	for text, s := range state.Objects {
		o := t.object(snapshot.Name(text))
		o.writes.fullAt, o.reported, o.asked = s.FullAt, s.Reported, s.AskedAt
		if s.Asked && s.AskedAt.IsZero() {
			o.asked = longAgo
		}
	}
	t.setLine(t.reports, state.Reports)
	t.setLine(t.retries, state.Retries)
}

// longAgo is when something happened of which it no longer matters when it was.
var longAgo = time.Time{}.Add(1)

// setLine replaces what a line remembers.
func (t *Limiter) setLine(l *line, state LineState) {
	if l.timer != nil {
		l.timer.Stop()
	}
	urgent := l.urgent
	*l = *newLine(urgent)
	l.rate.fullAt = state.FullAt
	if urgent != nil {
		urgent.fullAt = state.UrgentFullAt
	}
	for _, places := range state.Queues {
		for _, p := range places {
			l.join(snapshot.Name(p.Name), p.Since)
		}
	}
	l.turns = snapshot.Restore(state.Turns, snapshot.Same)
	if !state.FiresAt.IsZero() {
		t.setTimer(l, state.FiresAt)
	}
}

// state returns what the line remembers.
func (l *line) state(now time.Time) LineState {
	l.expire(now)
	state := LineState{FullAt: ifAfter(now, 0, l.rate.fullAt), Turns: snapshot.Save(l.turns, snapshot.Time)}
	if l.urgent != nil {
		state.UrgentFullAt = ifAfter(now, 0, l.urgent.fullAt)
	}
	for queues := l.queues.Front(); queues != nil; queues = queues.Next() {
		var places []PlaceState
		for e := queues.Value.(*queue).places.Front(); e != nil; e = e.Next() {
			p := e.Value.(*place)
			place := PlaceState{Name: p.name.String()}
			if l.urgent != nil {
				place.Since = ifAfter(now, maxWait, p.since)
			}
			places = append(places, place)
		}
		state.Queues = append(state.Queues, places)
	}
	if l.timer != nil {
		state.FiresAt = snapshot.Time(l.firesAt)
	}
	return state
}

// ifAfter returns a time, but zero if the period since then is over.
func ifAfter(now time.Time, period time.Duration, since time.Time) time.Time {
	if !since.Add(period).After(now) {
		return time.Time{}
	}
	return snapshot.Time(since)
}
