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
func sight(seconds int, progress int64, p Problem) Sight {
	return Sight{
		Now: start.Add(time.Duration(seconds) * time.Second), Generation: 1, Progress: progress, Problem: p,
		Settle: time.Minute, Recurs: func(reason string) bool { return reason == "Crash" },
	}
}

// The clock begins anew with progress, with an edit, and when an object is no longer complete.
func TestHistory(t *testing.T) {
	const deadline = 10 * time.Minute
	crash, pull, none := Problem{Reason: "Crash"}, Problem{Reason: "Pull"}, Problem{}
	complete := func(s Sight) Sight { s.IsComplete = true; return s }
	edited := func(s Sight) Sight { s.Generation = 2; return s }
	reported := func(s Sight, c Conclusion) Sight { s.Conditions = conditions(c, 1); return s }
	for name, test := range map[string]struct {
		sights    []Sight
		left      time.Duration // of the deadline
		recurring string
		again     time.Duration
	}{
		"at first":                      {[]Sight{sight(0, 0, none)}, deadline, "", deadline},
		"nothing happens":               {[]Sight{sight(0, 2, none), sight(9, 2, none)}, deadline - 9*time.Second, "", deadline - 9*time.Second},
		"progress":                      {[]Sight{sight(0, 2, none), sight(9, 3, none)}, deadline, "", deadline},
		"it falls back and recovers":    {[]Sight{sight(0, 2, none), sight(9, 1, none), sight(10, 2, none)}, deadline - 10*time.Second, "", deadline - 10*time.Second},
		"a problem after another":       {[]Sight{sight(0, 2, pull), sight(9, 2, Problem{Reason: "Full"})}, deadline - 9*time.Second, "", deadline - 9*time.Second},
		"too late":                      {[]Sight{sight(0, 2, pull), sight(600, 2, pull)}, 0, "", 0},
		"an edit":                       {[]Sight{sight(0, 2, pull), edited(sight(600, 2, pull))}, deadline, "", deadline},
		"complete":                      {[]Sight{complete(sight(0, 3, none)), complete(sight(9, 3, none))}, deadline - 9*time.Second, "", 0},
		"no longer complete":            {[]Sight{complete(sight(0, 3, none)), sight(999, 2, none)}, deadline, "", deadline},
		"and then as before":            {[]Sight{complete(sight(0, 3, none)), sight(9, 1, none), sight(10, 2, none)}, deadline, "", deadline},
		"between two crashes":           {[]Sight{sight(0, 2, crash), complete(sight(30, 3, none)), complete(sight(40, 3, none))}, deadline - 10*time.Second, "Crash", 50 * time.Second},
		"long after a crash":            {[]Sight{sight(0, 2, crash), complete(sight(30, 3, none)), complete(sight(90, 3, none))}, deadline - time.Minute, "", 0},
		"in a crash loop":               {[]Sight{sight(0, 2, crash), complete(sight(30, 3, none)), sight(61, 2, crash), complete(sight(630, 3, none))}, 0, "Crash", time.Minute},
		"slow after a crash":            {[]Sight{sight(0, 2, crash), sight(30, 2, none), complete(sight(80, 3, none))}, deadline, "Crash", time.Minute},
		"another one after a crash":     {[]Sight{sight(0, 2, crash), sight(30, 2, pull), sight(40, 2, none)}, deadline - 40*time.Second, "Crash", 50 * time.Second},
		"and for long":                  {[]Sight{sight(0, 2, crash), sight(30, 2, pull), sight(90, 2, pull)}, deadline - 90*time.Second, "", deadline - 90*time.Second},
		"a restart while it is stalled": {[]Sight{reported(sight(0, 2, pull), Conclusion{Stalled, "Pull", ""})}, 0, "", 0},
		"and then progress":             {[]Sight{reported(sight(0, 2, pull), Conclusion{Stalled, "Pull", ""}), sight(1, 3, pull)}, deadline, "", deadline},
		"a restart while it has begun":  {[]Sight{reported(sight(0, 2, pull), Conclusion{Reconciling, "Pull", ""})}, deadline, "", deadline},
		"a restart when it is over":     {[]Sight{complete(reported(sight(0, 3, none), Conclusion{Stalled, "Pull", ""}))}, 0, "", 0},
		"a restart between two crashes": {[]Sight{complete(reported(sight(0, 3, none), Conclusion{Stalled, "Crash", ""}))}, 0, "Crash", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			var h History
			var last Sight
			for _, last = range test.sights {
				h = h.Notice(last)
			}
			if left := h.Left(last.Now, deadline); left != test.left {
				t.Errorf("%s left, want %s", left, test.left)
			}
			if h.Recurring.Reason != test.recurring {
				t.Errorf("recurring is %q, want %q", h.Recurring.Reason, test.recurring)
			}
			if again := h.RequeueAfter(last.Now, last.Settle, Forever, deadline); again != test.again {
				t.Errorf("again after %s, want %s", again, test.again)
			}
			if h.Left(last.Now, Forever) != Forever {
				t.Error("no deadline has passed")
			}
		})
	}
}
