package text

import "strings"

// Answer reads the value of an annotation as yes or no. isClear is false if it is neither.
// Case does not matter, and an empty value means yes.
func Answer(value string) (isYes, isClear bool) {
	switch strings.ToLower(value) {
	case "", "true", "yes", "on", "1":
		return true, true
	case "false", "no", "off", "0":
		return false, true
	}
	return false, false
}
