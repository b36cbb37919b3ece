package crd

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Cone is a kind with what controller-gen makes of the types that do not agree with their schema, and
// of the same types with the markers that cure it.
type Cone struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Flavor   string                       `json:"flavor"`
		Interval *metav1.Duration             `json:"interval,omitempty"`
		Size     map[string]resource.Quantity `json:"size,omitempty"`
		Weight   *resource.Quantity           `json:"weight,omitempty"`
		Since    []metav1.Time                `json:"since,omitempty"`
		Count    uint8                        `json:"count,omitempty"`
	} `json:"spec"`
}

// DeepCopyObject is not called.
func (c *Cone) DeepCopyObject() runtime.Object { return c }

func found(t *testing.T, replace ...string) string {
	t.Helper()
	content, err := os.ReadFile("testdata/cones.yaml")
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(schema.GroupVersion{Group: "example.com", Version: "v1"}, &Cone{})
	var all strings.Builder
	for _, err := range disagreements([]byte(strings.NewReplacer(replace...).Replace(string(content))), scheme) {
		all.WriteString(err.Error() + "\n")
	}
	return all.String()
}

func TestWhatGoCannotDecodeOrAfford(t *testing.T) {
	found := found(t)
	for _, want := range []string{
		`v1: spec.count: the schema admits `,
		`give the field the marker +kubebuilder:validation:Minimum=… and +kubebuilder:validation:Maximum=…`,
		`v1: spec.interval: the schema admits "tomorrow": it cannot be decoded: time: invalid duration "tomorrow"; give the field the marker +kubebuilder:validation:Type=string and +kubebuilder:validation:Pattern=`,
		`v1: spec.since[]: the schema admits "2026-01-02t03:04:05z": it cannot be decoded: parsing time`,
		`v1: spec.size{}: the schema admits "1e1.5": it cannot be decoded: quantities must match`,
		`v1: spec.weight: the schema admits "`,
		` bytes): it takes more than 2s to decode and encode`,
	} {
		if !strings.Contains(found, want) {
			t.Errorf("nothing says %s", want)
		}
	}
	if strings.Count(found, "\n") != 5 {
		t.Error("one of these five is missing, or the flavor, which can be any text, is there")
	}
	if t.Failed() {
		t.Log(found)
	}
}

func TestTheCuresCure(t *testing.T) {
	if found := found(t,
		"minimum: 0", "minimum: 0, maximum: 255",
		"interval: {type: string", "interval: {type: string, pattern: '"+duration+"'",
		"format: date-time", "format: date-time, pattern: '"+dateTime+"'",
		`^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`, quantity,
		`^[0-9]+$`, quantity,
	); found != "" {
		t.Error(found)
	}
}
