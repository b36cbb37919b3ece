// Command local-cluster runs a real Kubernetes control plane on this machine. See README.md.
//
//   - The compiled programs are kept in $LOCAL_CLUSTER_CACHE or the user's cache directory (~/.cache/local-cluster on
//     Linux). If $KUBEBUILDER_ASSETS names a directory with etcd, kube-apiserver and kubectl, as setup-envtest downloads
//     them, these are not compiled; if the command is then killed, they outlive it.
//   - --dir must be empty, absent, or an earlier cluster's.
//   - If a component dies, up ends and prints the end of its log.
//   - All ports are free ones of 127.0.0.1. etcd accepts every local client.
//   - The programs' sources are required by the module in parts, which is tagged together with this one.
//   - This is a module of its own, so that the product does not depend on controller-runtime. A module of this tree that
//     uses it replaces it with this directory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
)

const usage = `usage: local-cluster <command> [flags]

  build                     compile the programs of a cluster
  up [--dir D] [--nodes N]  run a cluster until Ctrl-C
`

var errUsage = errors.New("wrong usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	switch err := run(ctx, os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "local-cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	dir := flags.String("dir", "", "`directory` of the cluster (default a temporary one)")
	nodes := flags.Int("nodes", cluster.DefaultNodes, "`number` of nodes")
	if err := flags.Parse(args[1:]); err != nil {
		return errors.Join(errUsage, err)
	}
	switch {
	case flags.NArg() > 0:
	case args[0] == "build":
		return cluster.Build(ctx, os.Stderr)
	case args[0] == "up":
		return up(ctx, *dir, *nodes)
	}
	return errUsage
}

// up runs a cluster until it is told to end, its parent has ended, or a component has died;
// only the last is an error. When everything is ready, it writes NAME=path lines to standard
// output.
func up(ctx context.Context, dir string, nodes int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parent := os.Getppid()
	go func() {
		for os.Getppid() == parent {
			time.Sleep(500 * time.Millisecond)
		}
		cancel()
	}()
	if nodes == 0 {
		nodes = -1 // cluster.Options take 0 for the default
	}
	c, err := cluster.Start(ctx, cluster.Options{Dir: dir, Nodes: nodes, Log: os.Stderr})
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	fmt.Printf("KUBECTL=%s\nKUBECONFIG=%s\n", c.Kubectl(), c.Kubeconfig())
	select {
	case <-ctx.Done():
		fmt.Fprintln(os.Stderr, "stopping the cluster")
	case <-c.Done():
	}
	return errors.Join(c.Err(), c.Stop())
}
