package secretsync

import (
	"bytes"
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// telling is how many characters of a Secret in a row, or all if it has fewer,
	// a message may not have.
	telling = 8
	// mostWords is how long a message may be.
	mostWords = 512
)

// shown is the Secret that whoever answers a write may have been shown; nil if it
// may have been another one, too, whose data is not known here: the copy that was
// there before.
func (o Observed) shown() *corev1.Secret {
	if o.Source != nil && o.Copy != nil && !hmac.Equal(digestOf(o.Copy), digestOf(o.Source)) {
		return nil
	}
	return o.Source
}

// discreet is an error without the words of the API server in it if these repeat
// some of the Secret that it was shown, as an admission policy or webhook might, or
// if what they might repeat is not known. What kind of error it is can still be
// told from it.
func discreet(err error, secret *corev1.Secret) error {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return err
	}
	words := err.Error()
	words = strings.ToValidUTF8(words[:min(len(words), mostWords)], "")
	if secret == nil || isTelling(words, secret) {
		words = "the API server's message is withheld, as it may repeat something of the Secret; its reason is " + string(apierrors.ReasonForError(err))
	}
	return &worded{error: err, words: words}
}

// worded is an error in other words.
type worded struct {
	error
	words string
}

func (w *worded) Error() string { return w.words }
func (w *worded) Unwrap() error { return w.error }

// isTelling says whether words repeat some of the values of a Secret, as they are,
// in base64 or in JSON.
func isTelling(words string, secret *corev1.Secret) bool {
	for _, value := range secret.Data {
		forms := [][]byte{value, []byte(base64.StdEncoding.EncodeToString(value))}
		if quoted, err := json.Marshal(string(value)); err == nil {
			forms = append(forms, quoted[1:len(quoted)-1])
		}
		for _, form := range forms {
			if overlaps([]byte(words), form) {
				return true
			}
		}
	}
	return false
}

// overlaps says whether words have telling characters in a row of value, or all
// of a shorter one.
func overlaps(words, value []byte) bool {
	if len(value) < telling {
		return len(value) > 0 && bytes.Contains(words, value)
	}
	for i := 0; i+telling <= len(words); i++ {
		if bytes.Contains(value, words[i:i+telling]) {
			return true
		}
	}
	return false
}
