// Package secretsync tests the program of that name as package e2e tests the Icecream controller.
package secretsync

import (
	"testing"

	"nicoleh.io/k8s-controller/test/lab"
)

var suite = lab.Suite{Program: lab.App("secretsync")}

func TestMain(m *testing.M) { suite.Main(m) }
