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

func TestHasTurned(t *testing.T) {
	progressing := conditions(Conclusion{Reconciling, "Progressing", "1 of 3"}, 1)
	for name, tt := range map[string]struct {
		from, to []metav1.Condition
		want     bool
	}{
		"the first status":                   {nil, progressing, true},
		"mere progress":                      {progressing, conditions(Conclusion{Reconciling, "Progressing", "2 of 3"}, 1), false},
		"another reason":                     {progressing, conditions(Conclusion{Reconciling, "ImagePullBackOff", ""}, 1), true},
		"ready":                              {progressing, conditions(Conclusion{Ready, "Available", ""}, 1), true},
		"no longer ready":                    {conditions(Conclusion{Ready, "Available", ""}, 1), progressing, true},
		"a new spec, and the same otherwise": {progressing, conditions(Conclusion{Reconciling, "Progressing", "1 of 3"}, 2), false},
		"nothing":                            {progressing, progressing, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := HasTurned(tt.from, tt.to); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
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
