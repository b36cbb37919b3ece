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
}
