// Command components is every component of a Kubernetes control plane in one binary, so
// that packages that several components use are linked and stored once. The component is
// named by the file name that the binary is started under (a symbolic link), or else by
// the first argument.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // CronJobs name time zones, also where the machine has no database of them.

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	components := map[string]func(args []string) int{
		"etcd":                    runEtcd,
		"kube-apiserver":          runCobra(apiserver.NewAPIServerCommand),
		"kube-controller-manager": runCobra(newControllerManager),
		"kube-scheduler":          runCobra(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kwok":                    runCobra(newKwok),
	}
	args := append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...)
	if components[args[0]] == nil && len(args) > 1 {
		args = args[1:]
	}
	run, ok := components[args[0]]
	if !ok {
		fmt.Fprintf(os.Stderr, "%s is not a component of the control plane\n", args[0])
		os.Exit(2)
	}
	// Cobra and etcd read the arguments from here.
	os.Args = args
	os.Exit(run(args))
}

// runEtcd returns when etcd has stopped.
func runEtcd(args []string) int {
	etcdmain.Main(args)
	return 0
}

// runCobra defers building the command until its component is the one asked for:
// building it has side effects on global flags and feature gates.
func runCobra(newCommand func() *cobra.Command) func([]string) int {
	return func([]string) int { return cli.Run(newCommand()) }
}
