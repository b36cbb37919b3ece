package icecream_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"nicoleh.io/k8s-controller/pkg/icecream"
)

// A label value is valid for every name that an object can have, says the same
// for the same name, and tells long names apart.
func FuzzLabelValue(f *testing.F) {
	long := strings.Repeat("sprinkles-", 20)
	for _, seed := range [][2]string{
		{"sundae", "cone"},
		{long + "a", long + "b"},
		{strings.Repeat("a", 63), strings.Repeat("a", 64)},
		{strings.Repeat("a", 51) + "." + strings.Repeat("b", 100), strings.Repeat("a", 51) + ".c"},
		{strings.Repeat("a.b-", 63) + "c", strings.Repeat("1", 253)},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		value := icecream.LabelValue(a)
		if icecream.LabelValue(a) != value {
			t.Errorf("icecream.LabelValue(%q) is not always the same", a)
		}
		if len(value) > validation.LabelValueMaxLength {
			t.Errorf("icecream.LabelValue(%q) has %d characters", a, len(value))
		}
		if len(validation.IsDNS1123Subdomain(a)) == 0 {
			if errs := validation.IsValidLabelValue(value); len(errs) > 0 {
				t.Errorf("icecream.LabelValue(%q) = %q: %s", a, value, strings.Join(errs, "; "))
			}
		}
		isLong := func(name string) bool { return len(name) > validation.LabelValueMaxLength }
		if a != b && isLong(a) == isLong(b) && icecream.LabelValue(b) == value {
			t.Errorf("%q and %q have the same label value %q", a, b, value)
		}
	})
}
