// Command components is kube-controller-manager, kube-scheduler or kwok, whichever its
// first argument names.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	"sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"

	"nicoleh.io/k8s-controller/hack/local-cluster/parts/parent"
)

func main() {
	os.Args = os.Args[1:] // where Cobra and kwok look for the flags
	parent.Watch()
	switch {
	case len(os.Args) > 0 && os.Args[0] == "kube-controller-manager":
		os.Exit(cli.Run(manager.NewControllerManagerCommand()))
	case len(os.Args) > 0 && os.Args[0] == "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case len(os.Args) > 0 && os.Args[0] == "kwok":
		if err := runKwok(); err != nil {
			fmt.Fprintln(os.Stderr, "kwok:", err)
			os.Exit(1)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: components kube-controller-manager|kube-scheduler|kwok [flags]")
		os.Exit(2)
	}
}

// runKwok does what the main function of kwok does.
func runKwok() error {
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, _ := log.InitFlags(signals.SetupSignalContext(), flags)
	ctx, err := config.InitFlags(ctx, flags)
	if err != nil {
		return err
	}
	command := kwok.NewCommand(ctx)
	command.Version = "" // its flag would be in conflict with that of Kubernetes
	command.PersistentFlags().AddFlagSet(flags)
	return command.ExecuteContext(ctx)
}
