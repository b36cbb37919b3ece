package main

import (
	"context"
	"testing"

	"nicoleh.io/k8s-controller/pkg/kittest/startup"
)

func TestStartup(t *testing.T) {
	startup.Test(t, func(ctx context.Context, args []string) error { return newProgram().Run(ctx, args) })
}
