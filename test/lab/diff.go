package lab

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// maxText is how many bytes of a text a failing test shows.
const maxText = 8 << 10

// Equal fails the test and shows the difference if want and got differ, apart from nil and
// empty.
func Equal[T any](t testing.TB, what string, want, got T, opts ...cmp.Option) {
	t.Helper()
	if diff := Diff(want, got, append(opts, cmpopts.EquateEmpty())...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Diff is cmp.Diff for values of any size.
func Diff(want, got any, opts ...cmp.Option) string { return Clip(cmp.Diff(want, got, opts...)) }

// Clip leaves out the middle of a text that is too long to be read.
func Clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText/2], "") + "\n... (left out)\n" + strings.ToValidUTF8(text[len(text)-maxText/2:], "")
}
