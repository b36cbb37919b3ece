package text

import (
	"crypto/sha256"
	"encoding/hex"
)

// maxLabel is how long the value of a label may be.
const maxLabel = 63

// LabelValue returns the label value for an object's name. A name of up to 63
// characters is its own label value; a longer one is cut and ends in a hash of
// the whole.
func LabelValue(name string) string {
	if len(name) <= maxLabel {
		return name
	}
	end := "-" + Hash([]byte(name))
	return name[:maxLabel-len(end)] + end
}

// Hash returns ten hexadecimal digits that distinguish a text from others.
func Hash(of []byte) string {
	sum := sha256.Sum256(of)
	return hex.EncodeToString(sum[:5])
}
