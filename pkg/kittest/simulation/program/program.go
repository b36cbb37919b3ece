// Package program runs a controller for package simulation, which does not import the kit so that the
// kit's own tests can use it.
package program

import (
	"context"

	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kittest/simulation"
)

// With returns how to run a program with one controller, for [simulation.Simulation].
func With(newDescriptor func() manager.Descriptor) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		// Each process has a descriptor of its own.
		p := manager.Manager{Name: "controller", LeaseName: simulation.Lease, Controllers: []manager.Descriptor{newDescriptor()}}
		return p.Run(ctx, append([]string{"-workers=2"}, args...))
	}
}
