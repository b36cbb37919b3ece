package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
)

// up runs a cluster until it is told to end, its parent has ended, or one of
// its components has died; only the last is an error.
//
// Standard output is for scripts: a line NAME=path per file of interest, of
// which KUBECONFIG is the last, when everything is ready.
func up(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	options := cluster.Options{Log: stderr}
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	flags.StringVar(&options.Dir, "dir", "", "keep everything in this `directory`; a later run carries on there (default a temporary one)")
	flags.IntVar(&options.Nodes, "nodes", cluster.DefaultNodes, "`number` of nodes")
	flags.StringVar(&options.FeatureGates, "feature-gates", "", "feature gates of all Kubernetes components, as in `A=true,B=false`")
	flags.BoolVar(&options.WithoutControllerManager, "without-controller-manager", false, "start no controllers")
	flags.BoolVar(&options.AuditBodies, "audit-bodies", false, "record the bodies of requests and responses too")
	flags.Func("audit-user", "record the requests of this user; repeatable, * for everybody", func(name string) error {
		options.AuditUsers = append(options.AuditUsers, name)
		return nil
	})
	if err := parseAll(flags, args, stderr); err != nil {
		return err
	}
	if options.Nodes == 0 {
		options.Nodes = -1 // in the package, 0 stands for the default
	}

	ctx, cancel := endWithParent(ctx)
	defer cancel()
	running, err := cluster.Start(ctx, options)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	if len(options.AuditUsers) > 0 {
		fmt.Fprintf(stdout, "AUDIT_LOG=%s\n", running.AuditLog())
	}
	fmt.Fprintf(stdout, "KUBECTL=%s\n", running.Kubectl())
	fmt.Fprintf(stdout, "KUBECONFIG=%s\n", running.Kubeconfig())

	select {
	case <-ctx.Done():
		fmt.Fprintln(stderr, "stopping the cluster")
	case <-running.Done():
	}
	return errors.Join(running.Err(), running.Stop())
}
