package source

import (
	"bytes"
	"strconv"
)

// numbers are what distinguishes one object at rest from the others of its kind.
type numbers struct {
	icecream int // the number of its Icecream, from 0
	version  int // its resourceVersion
}

// Tokens stand for numbers in sample objects. Each has as many bytes as the digits that
// replace it, so that the encoding of an object is that of the sample with other digits,
// whatever the encoding. Tokens are valid in names and labels, and occur nowhere else.
var tokens = []struct {
	text string
	of   func(numbers) int
}{
	{tokenIcecream, func(n numbers) int { return n.icecream }},
	{tokenNamespace, func(n numbers) int { return n.icecream / perNamespace }},
	{tokenNodes, func(n numbers) int { return n.icecream % nodeGroups }},
	{tokenVersion, func(n numbers) int { return n.version }},
}

const (
	tokenIcecream  = "qiiiiiiq"
	tokenNamespace = "qssq"
	tokenNodes     = "qgq"
	tokenVersion   = "qvvvvvvvvq"
)

const (
	// perNamespace is how many Icecreams there are in a namespace.
	perNamespace = 1000
	// nodeGroups is the number of groups of ten nodes; the Pods of an Icecream are on
	// those of one group.
	nodeGroups = 500
	// firstVersion is less than all resource versions. All of them have as many digits.
	firstVersion = 1_000_000_000
)

// A template is text with tokens, such as an encoded sample object.
type template struct {
	text []byte
	at   [][]int // for each token, where it begins
}

func newTemplate(text []byte) template {
	t := template{text: text}
	for _, token := range tokens {
		var at []int
		for i := 0; ; {
			next := bytes.Index(text[i:], []byte(token.text))
			if next < 0 {
				break
			}
			at = append(at, i+next)
			i += next + len(token.text)
		}
		t.at = append(t.at, at)
	}
	return t
}

// append appends the text for these numbers.
func (t template) append(to []byte, n numbers) []byte {
	start := len(to)
	to = append(to, t.text...)
	var buffer [20]byte
	for i, token := range tokens {
		if len(t.at[i]) == 0 {
			continue
		}
		digits := strconv.AppendInt(buffer[:0], int64(token.of(n)), 10)
		for _, at := range t.at[i] {
			field := to[start+at : start+at+len(token.text)]
			zeros := len(field) - len(digits)
			for j := range zeros {
				field[j] = '0'
			}
			copy(field[zeros:], digits)
		}
	}
	return to
}

// fill returns a text with these numbers.
func fill(text string, n numbers) string {
	return string(newTemplate([]byte(text)).append(nil, n))
}
