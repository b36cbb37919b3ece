// Package faults runs the real controller on a real control plane, with faults between the
// two or in one of them, and checks what it makes of them. See README.md.
package faults

import (
	"testing"

	"nicoleh.io/k8s-controller/test/lab"
)

func TestMain(m *testing.M) {
	lab.Main(m, func(int) error { return suite.Close(&shared) })
}

// The controller and the cluster that tests share. A test that breaks the cluster must not be
// parallel: such tests come first, one by one.
var (
	suite  = lab.Suite{Program: lab.Icecream}
	shared = lab.Shared{Suite: &suite}
)
