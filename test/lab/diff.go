package lab

import (
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// maxText is how many bytes of a text a failing test shows.
const maxText = 8 << 10

// Diff is cmp.Diff for values of any size.
func Diff(want, got any, opts ...cmp.Option) string { return Clip(cmp.Diff(want, got, opts...)) }

// ContainsAll reports whether text contains all of the words.
func ContainsAll(text string, words ...string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// Clip leaves out the middle of a text that is too long to be read.
func Clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText/2], "") + "\n... (left out)\n" + strings.ToValidUTF8(text[len(text)-maxText/2:], "")
}
