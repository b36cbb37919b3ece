package main

import (
	"context"
	"errors"
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
	flags, parsed := clusterFlags("up", stderr)
	if err := parseAll(flags, args, stderr); err != nil {
		return err
	}
	options := parsed()

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
