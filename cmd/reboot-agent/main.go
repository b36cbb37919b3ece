// Command reboot-agent reboots the node that it runs on when the controller nodereboot
// grants it a reboot. See package agent, and the README of package nodereboot.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/pkg/kit/flags"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
	"nicoleh.io/k8s-controller/pkg/nodereboot/agent"
)

// options are the flags.
type options struct {
	kubeconfig string
	command    string
	agent      agent.Config
	logging    *logsapi.LoggingConfiguration
	version    bool
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err == nil && o.version {
		fmt.Println(flags.VersionLine("reboot-agent"))
		return
	}
	var applied *logsapi.LoggingConfiguration
	if err == nil {
		err = logsapi.ValidateAndApply(o.logging, nil)
	}
	if err == nil {
		applied = o.logging
		err = run(o)
	}
	klog.Flush()
	if err != nil {
		flags.PrintError("reboot-agent", applied, err)
		os.Exit(1)
	}
}

// parse parses the flags.
func parse(args []string) (options, error) {
	o := options{logging: logsapi.NewLoggingConfiguration()}
	fs := flag.NewFlagSet("All flags", flag.ContinueOnError)
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "The path of a kubeconfig file. Without it, $KUBECONFIG is used, and without that, the service account of the agent's Pod.")
	agent.AddFlags(fs, &o.agent)
	fs.StringVar(&o.command, "reboot-command", "", "The program that reboots the system, with its arguments, separated by spaces. Without it, the agent signals process 1, which must be the host's systemd.")
	fs.BoolVar(&o.version, "version", false, "Print version, commit and Go version, and exit.")
	flags.AddLogging(fs, o.logging)
	if err := flags.Parse("reboot-agent", args, fs); err != nil || o.version {
		return o, err
	}
	return o, o.agent.Validate()
}

// run runs the agent until the first signal. A second one kills the process.
func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if o.agent.WatchSentinel {
		return agent.WatchSentinel(ctx, o.agent.SentinelFile, o.agent.SentinelState, o.agent.LookEvery)
	}
	config, err := flags.ClusterConfig(o.kubeconfig, "")
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	metadata, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	own := preflight.Resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("nodes"),
		Fields:               fields.OneTermEqualSelector(metav1.ObjectNameField, o.agent.NodeName).String(),
		Permit:               "kubectl apply -f artifacts/reboot-agent.yaml",
	}
	informers := kubeinformers.NewSharedInformerFactoryWithOptions(kube, 0, kubeinformers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.FieldSelector = own.Fields
	}))
	var host agent.Rebooter = agent.NewSystemd()
	if words := strings.Fields(o.command); len(words) > 0 {
		host = agent.Command(words)
	}
	a, err := agent.New(o.agent, kube, informers, host)
	if err != nil {
		return err
	}
	klog.Background().Info("Starting", "version", flags.VersionLine("reboot-agent"), "node", o.agent.NodeName, "dryRun", o.agent.DryRun)
	err = preflight.Await(ctx, metadata, own)
	if err == nil {
		informers.StartWithContext(ctx)
		err = a.Run(ctx)
	}
	if err != nil && ctx.Err() == nil {
		return err
	}
	klog.Background().Info("Stopped")
	return nil
}
