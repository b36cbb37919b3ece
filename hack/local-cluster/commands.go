package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
)

func build(ctx context.Context, args []string, _, stderr io.Writer) error {
	if err := parseAll(flag.NewFlagSet("build", flag.ContinueOnError), args, stderr); err != nil {
		return err
	}
	return cluster.Build(ctx, cluster.Options{Log: stderr})
}

// kubeconfig prints the path of the kubeconfig that it has written.
func kubeconfig(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("kubeconfig", flag.ContinueOnError)
	dir := flags.String("dir", "", "`directory` of the cluster")
	account := flags.String("service-account", "", "`namespace/name` of the service account")
	if err := parseAll(flags, args, stderr); err != nil {
		return err
	}
	namespace, name, found := strings.Cut(*account, "/")
	if *dir == "" || !found {
		flags.Usage()
		return errUsage
	}
	path, err := cluster.ServiceAccountKubeconfig(ctx, *dir, namespace, name)
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return fmt.Errorf("finding the kubeconfig: %w", err)
	}
	fmt.Fprintf(stdout, "KUBECONFIG=%s\n", path)
	return nil
}

// kubectl becomes the kubectl of a cluster.
func kubectl(_ context.Context, args []string, _, stderr io.Writer) error {
	flags := flag.NewFlagSet("kubectl", flag.ContinueOnError)
	dir := flags.String("dir", "", "`directory` of the cluster; the rest of the line, best after --, is for kubectl")
	if err := parse(flags, args, stderr); err != nil {
		return err
	}
	if *dir == "" {
		flags.Usage()
		return errUsage
	}
	program, config := cluster.Kubectl(*dir)
	err := syscall.Exec(program, append([]string{"kubectl", "--kubeconfig=" + config}, flags.Args()...), os.Environ())
	return errors.Join(errors.New("starting kubectl"), err)
}
