package text

import (
	"strings"
	"time"
)

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

// Time returns the time (RFC 3339) in the value of an annotation, and whether it is one.
// Case does not matter.
func Time(value string) (at time.Time, isTime bool) {
	at, err := time.Parse(time.RFC3339, strings.ToUpper(value))
	return at, err == nil
}
