package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ownWords matches what the API server itself writes at the beginning of a message: who has refused a request. What
// follows are the words of a webhook, a policy or a validation, which can repeat what they were shown.
var ownWords = regexp.MustCompile(`^(?:Internal error occurred: |secrets (?:"[^"]+" )?is forbidden: )?(` +
	`admission webhook "[^"]+" denied the request|` +
	`failed calling webhook "[^"]+"|` +
	`(?:ValidatingAdmissionPolicy|policy) '[^']+' (?:with binding '[^']+' )?denied request|` +
	`exceeded quota: [^ ,]+|` +
	`User "[^"]+" cannot [a-z]+ resource "[a-z]+"|` +
	`Operation cannot be fulfilled on [a-z]+ "[^"]+"|` +
	`secrets "[^"]+" already exists)`)

// redact replaces the message of the API server's error by one that contains no data of a Secret. The returned error
// wraps err.
func redact(doing string, err error) error {
	var answer apierrors.APIStatus
	if err == nil || !errors.As(err, &answer) {
		return err
	}
	words := ownWords.FindStringSubmatch(answer.Status().Message)
	if words == nil {
		return &redacted{err, fmt.Sprintf("%s: %s (the message is withheld, because it can contain data of the Secret)", doing, apierrors.ReasonForError(err))}
	}
	return &redacted{err, doing + ": " + words[1]}
}

// isNameTaken reports whether a redacted error says, in the API server's own words, that a Secret has the name already.
func isNameTaken(err error) bool { return strings.HasSuffix(err.Error(), `" already exists`) }

// redacted is an error with another message.
type redacted struct {
	error
	message string
}

func (r *redacted) Error() string { return r.message }
func (r *redacted) Unwrap() error { return r.error }
