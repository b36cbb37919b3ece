// Package kittest has what the unit tests of several controllers need. Package script plays the
// cluster around a controller; package apiserver is the model of the API server behind it.
package kittest

import (
	"testing/synctest"
	"time"
)

// Pass lets the time of a testing/synctest bubble pass, and waits until everything in the
// bubble has settled.
func Pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
