package icecream

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/randfill"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Whatever is observed, nonsense too, nothing panics and nothing of it is changed, and what is to be written can be.
// The simulation shows that decisions reach a state with nothing left to write.
func FuzzDecide(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(binary.BigEndian.AppendUint64(nil, seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := someObserved(data)
		before, err := json.Marshal(o)
		if err != nil {
			t.Skip(err) // such as a time in the year 10,000
		}
		plan := Decide(o)
		s, recheckAfter := Status(o, plan)
		events := []Event{StatusEvent(o.Icecream.Status, s)}
		if o.Live != nil {
			events = append(events, o.WriteEvent(o.Live.DeepCopy(), plan.Apply != nil))
		}
		after, err := json.Marshal(o)
		if diff := cmp.Diff(string(before), string(after)); diff != "" || err != nil {
			t.Errorf("%v; what was observed has changed (-before +after):\n%s", err, diff)
		}
		if recheckAfter < 0 || plan.Wait < 0 || plan.Apply != nil && plan.Held.Reason != "" {
			t.Errorf("again after %s, and the plan is %+v", recheckAfter, plan)
		}
		if got := verdictOf(s); strings.Count(got, ": ") != 1 {
			t.Errorf("conditions say %s", got)
		}
		for _, e := range events {
			if e != (Event{}) && (e.Type == "" || e.Reason == "" || len(e.Message) > maxMessage) {
				t.Errorf("event %+v is not one that the API server takes", e)
			}
		}
	})
}

// someObserved returns what can be observed, as the data have it.
func someObserved(data []byte) (o Observed) {
	fill := randfill.NewFromGoFuzz(data).NilChance(0.3).NumElements(0, 3).Funcs(
		func(name *string, c randfill.Continue) { // Few, so that things often have to do with each other.
			*name = []string{"", "sundae", "cone", "sundae-7c8b", "7c8b", "Crème/brûlée", "\xff", strings.Repeat("sprinkles-", 200), c.String(20)}[c.Intn(9)]
		},
		func(q *resource.Quantity, c randfill.Continue) {
			*q = resource.MustParse([]string{"0", "-1", "0.5", "100u", "1e3", "1e400", "9e-9"}[c.Intn(7)])
		},
		func(raw *runtime.RawExtension, c randfill.Continue) {
			raw.Raw = []byte([]string{
				"", "5", "null", "{}", `{"spec": {"containers": [null, {}]}}`, `{"spec": null, "metadata": {"labels": {"\ufffd": ""}}}`,
				`{"spec": {"containers": [{"name": "icecream", "env": [{"name": "A", "value": "a"}]}]}}`,
			}[c.Intn(7)])
		},
		func(fields *metav1.FieldsV1, c randfill.Continue) {
			fields.SetRawBytes([]byte([]string{"", "{}", "5", `{"f:spec":{"f:replicas":{}}}`}[c.Intn(4)]))
		},
		func(t *corev1.PodTemplateSpec, c randfill.Continue) { c.Fill(&t.Spec.Containers) },
		func(err *error, c randfill.Continue) {
			*err = []error{nil, invalid(), forbidden("melted"), errors.New("connection refused")}[c.Intn(4)]
		},
	)
	fill.Fill(&o)
	if o.Icecream == nil {
		o.Icecream = newIcecream()
	}
	var isOwn bool
	if fill.Fill(&isOwn); isOwn && o.Live != nil {
		o.Live.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(o.Icecream, schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Icecream"))}
	}
	return o
}
