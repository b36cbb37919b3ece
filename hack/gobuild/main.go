// Command gobuild is "go build" with the flags of hack/build.env and a line that says
// how much is left. It runs in the root of the repository:
//
//	go run ./hack/gobuild -o controller .
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"nicoleh.io/k8s-controller/hack/gobuild/build"
	"nicoleh.io/k8s-controller/hack/gobuild/buildenv"
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
	if len(args) == 0 || slices.ContainsFunc(args, func(arg string) bool { return arg == "-h" || arg == "--help" }) {
		return fmt.Errorf("usage: gobuild [flags of go build] package")
	}
	env, err := buildenv.Read(".")
	if err != nil {
		return err
	}
	last := len(args) - 1
	return build.Build{
		Title:    "the " + title(args[:last]),
		Env:      env,
		Flags:    args[:last],
		Packages: args[last:],
	}.Run(ctx, os.Stderr)
}

// title returns the file that the flag -o names.
func title(flags []string) string {
	if i := slices.Index(flags, "-o"); i >= 0 && i+1 < len(flags) {
		return flags[i+1][strings.LastIndexByte(flags[i+1], '/')+1:]
	}
	return "program"
}
