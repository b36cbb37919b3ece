// Command controller runs the controllers of this repository against a Kubernetes
// cluster until it is told to stop. See README.md.
package main

import (
	_ "time/tzdata" // the image has none

	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/nodereboot"
	"nicoleh.io/k8s-controller/pkg/podtimestamp"
	"nicoleh.io/k8s-controller/pkg/secretsync"
)

func main() {
	newProgram().Main()
}

// newProgram returns a program that runs all controllers of this repository.
func newProgram() manager.Manager {
	return manager.Manager{
		Name:            "controller",
		LeaseName:       "k8s-controller",
		FormerLeaseName: "icecream-controller",
		Controllers: []manager.Descriptor{
			NewDescriptor(),
			podtimestamp.NewDescriptor(),
			secretsync.NewDescriptor(),
			nodereboot.NewDescriptor(),
		},
	}
}
