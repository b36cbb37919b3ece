package worker

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// Terminal marks err as one that a retry cannot fix, such as a spec that the API server
// refuses. The loop reports it once, and does not sync the object again until it changes,
// or until the requeueAfter that came with err. Terminal(nil) is nil.
func Terminal(err error) error { return mark(err, GaveUp) }

// Requeue marks err as part of normal operation, such as a cache that lags behind this
// process's own write. The loop retries with back-off, and does not report the error.
// Requeue(nil) is nil.
func Requeue(err error) error { return mark(err, Deferred) }

func mark(err error, result Result) error {
	if err == nil {
		return nil
	}
	return &marked{error: err, result: result}
}

// marked is an error with the result that whoever returned it has decided on.
type marked struct {
	error
	result Result
}

func (m *marked) Unwrap() error { return m.error }

// resultOf returns the result of a sync that returned err, which must not be nil. The
// outermost mark counts. Without a mark, a conflict is Deferred, and every other error is
// Failed. Of several joined errors, the one that most needs a retry decides: Failed
// before Deferred before GaveUp.
func resultOf(err error) Result {
	if m, ok := err.(*marked); ok { //nolint:errorlint // Wrapping is followed one layer at a time: the outermost mark counts.
		return m.result
	}
	inner := unwrap(err)
	if len(inner) == 0 {
		if apierrors.IsConflict(err) {
			return Deferred
		}
		return Failed
	}
	result := GaveUp
	for _, err := range inner {
		switch resultOf(err) {
		case Failed:
			return Failed
		case Deferred:
			result = Deferred
		default:
		}
	}
	return result
}

// retryAfter returns how long the API server asked its client to wait: the longest such
// delay in err, or 0 if there is none.
func retryAfter(err error) time.Duration {
	inner := unwrap(err)
	if len(inner) == 0 {
		seconds, _ := apierrors.SuggestsClientDelay(err)
		return time.Duration(seconds) * time.Second
	}
	var longest time.Duration
	for _, err := range inner {
		longest = max(longest, retryAfter(err))
	}
	return longest
}

// unwrap returns the errors directly inside err: one if it wraps, several if it
// joins (errors.Join, several %w, an apimachinery Aggregate), none if it does
// neither.
func unwrap(err error) []error {
	switch err := err.(type) { //nolint:errorlint // One layer, on purpose: errors.As would only ever find the first of several.
	case interface{ Unwrap() []error }:
		return err.Unwrap()
	case utilerrors.Aggregate:
		return err.Errors()
	case interface{ Unwrap() error }:
		if inner := err.Unwrap(); inner != nil {
			return []error{inner}
		}
	}
	return nil
}
