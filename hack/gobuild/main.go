// Command gobuild is "go build" with the flags of hack/build.env and a line that says
// how far it is. It runs in the root of the repository:
//
//	go run ./hack/gobuild -o controller .
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"nicoleh.io/k8s-controller/hack/gobuild/build"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gobuild:", err)
		os.Exit(1)
	}
}

// run builds the last argument, with the others as flags of the go command.
func run(ctx context.Context, args []string) error {
	last := len(args) - 1
	if last < 2 || args[last-2] != "-o" {
		return fmt.Errorf("usage: gobuild [flags of go build] -o file package")
	}
	env, err := build.Env(".")
	if err != nil {
		return err
	}
	b := build.Build{Title: "the " + filepath.Base(args[last-1]), Env: env, Flags: args[:last], Packages: args[last:]}
	return b.Run(ctx, os.Stderr)
}
