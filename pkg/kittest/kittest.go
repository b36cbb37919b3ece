// Package kittest is the map of what tests of controllers need, and has what the unit tests of several share.
//
//   - script plays the cluster around a controller: stories, which are text files
//   - apiserver is the model of the API server behind it
//   - crd checks that the Go types can decode whatever a schema admits
//   - startup checks what a program does with its flags
//   - simulation runs a whole program against a world that a seed draws
//
// A controller needs the first three: see the tests of examples/database.
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
