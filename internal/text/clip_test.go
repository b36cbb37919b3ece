package text_test

import (
	"fmt"
	"testing"
	"unicode/utf8"

	"nicoleh.io/k8s-controller/internal/text"
)

func ExampleClip() {
	fmt.Println(text.Clip("crème brûlée", 3))
	// Output: cr
}

func FuzzClip(f *testing.F) {
	f.Add("crème", 3)
	f.Add("\xff", 1)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < 0 {
			return
		}
		if got := text.Clip(s, limit); len(got) > limit || !utf8.ValidString(got) {
			t.Errorf("%q clipped to %d bytes is %q", s, limit, got)
		}
	})
}
