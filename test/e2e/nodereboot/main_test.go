// Package nodereboot tests the program of that name, with its agents, as package e2e tests the
// Icecream controller.
package nodereboot

import (
	"testing"

	"nicoleh.io/k8s-controller/test/lab"
)

var suite = lab.Suite{Program: lab.App("nodereboot"), Accounts: []string{agentName}}

func TestMain(m *testing.M) { suite.Main(m) }
