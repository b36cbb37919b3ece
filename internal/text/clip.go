// Package text shortens text to the API's limits, and reads yes and no from annotations.
package text

import "strings"

// Clip returns the beginning of s, at most limit bytes long, as valid UTF-8: a character
// that would be cut in half is left out. What was cut off is not kept in memory.
func Clip(s string, limit int) string {
	if len(s) > limit {
		s = strings.Clone(s[:limit])
	}
	return strings.ToValidUTF8(s, "")
}
