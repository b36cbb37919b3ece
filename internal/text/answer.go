package text

import "strings"

// Answer returns what the value of an annotation that asks yes or no means, and whether
// that is clear. Case does not matter. An annotation without a value means yes.
func Answer(value string) (isYes, isClear bool) {
	switch strings.ToLower(value) {
	case "", "true", "yes", "on", "1":
		return true, true
	case "false", "no", "off", "0":
		return false, true
	}
	return false, false
}
