// Package text shortens texts to what the API server accepts.
package text

import "strings"

// Clip returns the beginning of s, at most limit bytes long, as valid UTF-8: a character
// that would be cut in half is left out.
func Clip(s string, limit int) string {
	return strings.ToValidUTF8(s[:min(len(s), limit)], "")
}
