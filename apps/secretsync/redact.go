package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nicoleh.io/k8s-controller/internal/text"
)

const (
	// minLeak is the length in bytes of the shortest part of a Secret's value that must
	// not appear in a message. A shorter value must not appear as a whole.
	minLeak = 8
	// maxMessage is the length in bytes of the longest message.
	maxMessage = 512
)

// redact returns an error of the API server with a message that repeats nothing of a
// Secret. The message of an admission policy or webhook might: then it is withheld, also if
// it could repeat the previous data of the copy, which are not known here. The returned
// error wraps err.
func (o Observed) redact(err error) error {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return err
	}
	message := text.Clip(err.Error(), maxMessage)
	isKnown := o.Source != nil && (o.Copy == nil || bytes.Equal(digestOf(o.Copy), digestOf(o.Source)))
	if !isKnown || leaks(message, o.Source) {
		message = "the API server's message is withheld because it may contain data of the Secret; its reason is " + string(apierrors.ReasonForError(err))
	}
	return &redacted{error: err, message: message}
}

// redacted is an error with another message.
type redacted struct {
	error
	message string
}

func (r *redacted) Error() string { return r.message }
func (r *redacted) Unwrap() error { return r.error }

// leaks reports whether a message repeats part of a value of the Secret as it is, in base64
// or in JSON.
func leaks(message string, secret *corev1.Secret) bool {
	parts := map[[minLeak]byte]bool{}
	for i := 0; i+minLeak <= len(message); i++ {
		parts[[minLeak]byte([]byte(message[i:i+minLeak]))] = true
	}
	for _, value := range secret.Data {
		forms := [][]byte{value, []byte(base64.StdEncoding.EncodeToString(value))}
		if quoted, err := json.Marshal(string(value)); err == nil {
			forms = append(forms, quoted[1:len(quoted)-1])
		}
		for _, form := range forms {
			if len(form) < minLeak && len(form) > 0 && strings.Contains(message, string(form)) || hasPart(form, parts) {
				return true
			}
		}
	}
	return false
}

// hasPart reports whether a value has one of the parts.
func hasPart(value []byte, parts map[[minLeak]byte]bool) bool {
	for i := 0; i+minLeak <= len(value); i++ {
		if parts[[minLeak]byte(value[i:i+minLeak])] {
			return true
		}
	}
	return false
}
