// Command local-cluster runs a real Kubernetes control plane on this machine.
//
//	local-cluster up          start one, until Ctrl-C
//	local-cluster run         run a command on one
//	local-cluster build       only build what it consists of
//	local-cluster kubeconfig  write a kubeconfig of a service account
//	local-cluster kubectl     run kubectl as administrator of a cluster
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: local-cluster <command> [flags]

commands:
  up          start a cluster and run it until Ctrl-C
  run         run a command on a cluster of its own, which ends with it
  build       build the programs of a cluster and start nothing
  kubeconfig  write a kubeconfig of a service account of a running cluster
  kubectl     run kubectl as the administrator of a running cluster

Every command lists its flags with -h.
`

// errUsage says that the flag package has already explained what is wrong.
var errUsage = errors.New("wrong usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(exitCode(run(ctx, os.Args[1:], os.Stdout, os.Stderr), os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	commands := map[string]func(context.Context, []string, io.Writer, io.Writer) error{
		"up":         up,
		"run":        with,
		"build":      build,
		"kubeconfig": kubeconfig,
		"kubectl":    kubectl,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprint(stderr, usage)
		return errUsage
	}
	return commands[args[0]](ctx, args[1:], stdout, stderr)
}

// exitCode reports an error, unless it has been, and translates it.
func exitCode(err error, stderr io.Writer) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	default:
		if status, ok := errors.AsType[errExit](err); ok {
			return int(status)
		}
		fmt.Fprintln(stderr, "local-cluster:", err)
		return 1
	}
}

// parse parses the flags that args begin with.
func parse(flags *flag.FlagSet, args []string, stderr io.Writer) error {
	flags.SetOutput(stderr)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	return nil
}

// parseAll parses flags, of which args must consist entirely.
func parseAll(flags *flag.FlagSet, args []string, stderr io.Writer) error {
	if err := parse(flags, args, stderr); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "unexpected argument %q\n", flags.Arg(0))
		flags.Usage()
		return errUsage
	}
	return nil
}
