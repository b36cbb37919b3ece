package kstatus

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var start = time.Unix(1e9, 0)

// conditions are those of an object about which that is concluded.
func conditions(c Conclusion, generation int64) (conditions []metav1.Condition) {
	c.SetOn(&conditions, generation, start)
	return conditions
}

func TestIsUrgent(t *testing.T) {
	progressing := conditions(Conclusion{Reconciling, "Progressing", "1 of 3"}, 1)
	for _, tt := range []struct {
		name     string
		from, to []metav1.Condition
		want     bool
	}{
		{"the first status, if nothing is wrong", nil, progressing, false},
		{"the first status, if something is", nil, conditions(Conclusion{Reconciling, "ImagePullBackOff", ""}, 1), true},
		{"the first status, if it is ready", nil, conditions(Conclusion{Ready, "Available", ""}, 1), true},
		{"mere progress", progressing, conditions(Conclusion{Reconciling, "Progressing", "2 of 3"}, 1), false},
		{"another reason", progressing, conditions(Conclusion{Reconciling, "ImagePullBackOff", ""}, 1), true},
		{"the same reason in other words", conditions(Conclusion{Stalled, "Refused", "by port 40001"}, 1), conditions(Conclusion{Stalled, "Refused", "by port 40002"}, 1), false},
		{"ready", progressing, conditions(Conclusion{Ready, "Available", ""}, 1), true},
		{"no longer ready", conditions(Conclusion{Ready, "Available", ""}, 1), progressing, true},
		{"stalled", progressing, conditions(Conclusion{Stalled, "ImagePullBackOff", ""}, 1), true},
		{"no longer stalled", conditions(Conclusion{Stalled, "ImagePullBackOff", ""}, 1), progressing, true},
		{"a new spec, if nothing is wrong", progressing, conditions(Conclusion{Reconciling, "Progressing", "1 of 3"}, 2), false},
		{"a new spec, if something is", progressing, conditions(Conclusion{Stalled, "Refused", "no"}, 2), true},
		{"a new spec that is ready", conditions(Conclusion{Ready, "Available", ""}, 1), conditions(Conclusion{Ready, "Available", ""}, 2), true},
		{"nothing", progressing, progressing, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := IsUrgent(tt.from, tt.to); got != tt.want {
				t.Errorf("IsUrgent = %t, want %t", got, tt.want)
			}
		})
	}
}

func TestSetOn(t *testing.T) {
	set := conditions(Conclusion{Stalled, "Refused", "no"}, 3)
	set = append(set, metav1.Condition{Type: "Tasty", Status: metav1.ConditionTrue})
	// Times have seconds on the wire, or the same status would be written again and again.
	Conclusion{Reconciling, "Progressing", strings.Repeat("x", maxMessage+1)}.SetOn(&set, 4, start.Add(time.Minute+time.Second/3))
	if len(set) != 4 {
		t.Fatalf("got %+v", set)
	}
	for _, state := range States() {
		c := meta.FindStatusCondition(set, string(state))
		wantStatus, wantTime, wantMessage := metav1.ConditionFalse, start.Add(time.Minute), 0
		if state == Reconciling {
			wantStatus, wantMessage = metav1.ConditionTrue, maxMessage
		}
		if state == Ready {
			wantTime, wantMessage = start, maxMessage // it was False before
		}
		if c.Status != wantStatus || c.Reason != "Progressing" || c.ObservedGeneration != 4 || len(c.Message) != wantMessage || !c.LastTransitionTime.Time.Equal(wantTime) {
			t.Errorf("got %+v", c)
		}
	}
	if got, want := ReadinessOf(set), (Readiness{metav1.ConditionFalse, "Progressing"}); got != want {
		t.Errorf("readiness %v, want %v", got, want)
	}
	if got, want := ReadinessOf(nil), (Readiness{metav1.ConditionUnknown, ""}); got != want {
		t.Errorf("readiness without conditions %v, want %v", got, want)
	}
}

// sight is what is seen of an object that many seconds after the start.
func sight(seconds int, p Problem) Sight {
	return Sight{
		Now: start.Add(time.Duration(seconds) * time.Second), Generation: 1, Problem: p,
		IsProblem: func(reason string) bool { return reason == "Crash" || reason == "Pull" },
		Recurring: "Crash", Settle: time.Minute,
	}
}

func TestHistory(t *testing.T) {
	crash, pull := Problem{Reason: "Crash", Patience: time.Minute}, Problem{Reason: "Pull", Patience: time.Minute}
	complete := func(s Sight) Sight { s.IsComplete = true; return s }
	edited := func(s Sight) Sight { s.Generation = 2; return s }
	reported := func(s Sight, c Conclusion) Sight { s.Conditions = conditions(c, 1); return s }
	for name, test := range map[string]struct {
		sights []Sight
		want   string // state and reason of the conclusion
		after  time.Duration
	}{
		"nothing":                       {[]Sight{sight(0, Problem{})}, "", 0},
		"a problem at first":            {[]Sight{sight(0, pull)}, "Reconciling Pull", time.Minute},
		"a problem that lasts":          {[]Sight{sight(0, pull), sight(60, pull)}, "Stalled Pull", 0},
		"a problem that ended":          {[]Sight{sight(0, pull), sight(60, Problem{})}, "", 0},
		"one after another":             {[]Sight{sight(0, pull), sight(60, crash)}, "Reconciling Crash", time.Minute},
		"a spec that was edited":        {[]Sight{sight(0, pull), edited(sight(60, pull))}, "Reconciling Pull", time.Minute},
		"one that is not mentioned":     {[]Sight{sight(0, Problem{Reason: "Slow", Quiet: true, Patience: time.Minute})}, "", time.Minute},
		"not until it lasts":            {[]Sight{sight(0, Problem{Reason: "Slow", Quiet: true}), sight(1, Problem{Reason: "Slow", Quiet: true})}, "Stalled Slow", 0},
		"first one Pod is slow":         {[]Sight{sight(0, Problem{Reason: "Slow", Object: "a", Patience: time.Minute}), sight(60, Problem{Reason: "Slow", Object: "b", Patience: time.Minute})}, "Reconciling Slow", time.Minute},
		"one that ends by itself":       {[]Sight{sight(0, Problem{Reason: "Gone", Patience: Forever}), sight(1e6, Problem{Reason: "Gone", Patience: Forever})}, "Reconciling Gone", 0},
		"between two crashes":           {[]Sight{sight(0, crash), complete(sight(30, Problem{}))}, "Reconciling Crash", 30 * time.Second},
		"long after a crash":            {[]Sight{sight(0, crash), complete(sight(30, Problem{})), complete(sight(90, Problem{}))}, "", 0},
		"in a crash loop":               {[]Sight{sight(0, crash), complete(sight(30, Problem{})), sight(61, crash)}, "Stalled Crash", 0},
		"a restart while it is stalled": {[]Sight{reported(sight(0, pull), Conclusion{Stalled, "Pull", ""})}, "Stalled Pull", 0},
		"a restart while it has begun":  {[]Sight{reported(sight(0, pull), Conclusion{Reconciling, "Pull", ""})}, "Reconciling Pull", time.Minute},
		"a restart when it is over":     {[]Sight{reported(sight(0, Problem{}), Conclusion{Stalled, "Pull", ""})}, "", 0},
		"a restart between two crashes": {[]Sight{reported(sight(0, Problem{}), Conclusion{Stalled, "Crash", ""})}, "Stalled Crash", time.Minute},
		"a restart with mere progress":  {[]Sight{reported(sight(0, Problem{}), Conclusion{Stalled, "Progressing", ""})}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var h History
			var last Sight
			for _, last = range test.sights {
				h = h.Notice(last)
			}
			got := ""
			if c, ok := h.Conclude(last.Now); ok {
				got = string(c.State) + " " + c.Reason
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if after := h.RequeueAfter(last.Now, last.Settle); after != test.after {
				t.Errorf("again after %s, want %s", after, test.after)
			}
			if h.Problem == (Problem{}) && h.Since != (time.Time{}) {
				t.Errorf("no problem since %s", h.Since)
			}
		})
	}
}
