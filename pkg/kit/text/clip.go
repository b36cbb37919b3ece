// Package text makes texts that the API server accepts of longer ones.
package text

import "strings"

// Clip returns the beginning of s, at most limit bytes long, as valid UTF-8: a character
// that would be cut in half is left out.
func Clip(s string, limit int) string {
	return strings.ToValidUTF8(s[:min(len(s), limit)], "")
}
