package agent

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// Each step's write leaves the annotations of others, and those of its own that it
// does not name.
func TestWritesLeaveWhatIsNotTheirs(t *testing.T) {
	record := map[string]string{"example.com/kept": "x", request.InProgress: `{"bootID":"old","wasCordoned":false,"since":"2026-07-01T12:00:00Z"}`}
	for step, n := range map[Step]*corev1.Node{
		Begin:  node(map[string]string{"example.com/kept": "x", request.Now: ""}),
		Cordon: node(record),
		Undo:   node(record, cordoned),
	} {
		now := noon
		if step == Undo {
			now = noon.Add(time.Hour)
		}
		d, err := Decide(Observed{Now: now, Node: n, BootID: "old", Limits: limits})
		if err != nil || d.Step != step {
			t.Fatalf("step %s, want %s: %v", d.Step, step, err)
		}
		a := &Agent{kube: fake.NewClientset(n)}
		if _, err := a.write(t.Context(), n, d); err != nil {
			t.Fatal(err)
		}
		after, err := a.kube.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if after.Annotations["example.com/kept"] != "x" || after.Annotations[request.InProgress] == "" {
			t.Errorf("%s has left %v", step, after.Annotations)
		}
	}
}
