// Command reboot-agent reboots the node that it runs on when the controller nodereboot
// grants it a reboot. See package agent, and the README of nodereboot.
package main

import (
	"context"
	"flag"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/apps/nodereboot/agent"
	"nicoleh.io/k8s-controller/internal/flags"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
)

// options are the flags.
type options struct {
	kubeconfig string
	command    string
	agent      agent.Config
}

func main() {
	var o options
	set := o.flagSet()
	flags.Main("reboot-agent", func(ctx context.Context) error { return run(ctx, o) }, set)
}

// flagSet returns the flags that set o, and sets o to their defaults.
func (o *options) flagSet() *flag.FlagSet {
	fs := flag.NewFlagSet("The agent", flag.ContinueOnError)
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "Path of a kubeconfig file. Default: $KUBECONFIG, and without that, the service account of the Pod that this process runs in.")
	agent.AddFlags(fs, &o.agent)
	fs.StringVar(&o.command, "reboot-command", "", "The program that reboots the system, with its arguments, separated by spaces. If empty, the agent signals process 1, which must be the host's systemd.")
	return fs
}

// run runs the agent until ctx ends.
func run(ctx context.Context, o options) error {
	if err := o.agent.Validate(); err != nil {
		return err
	}
	if o.agent.WatchSentinel {
		return agent.WatchSentinel(ctx, o.agent.SentinelFile, o.agent.SentinelState, o.agent.LookEvery)
	}
	config, err := flags.Cluster{Kubeconfig: o.kubeconfig}.Config()
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
		Permit:               "kubectl apply -f apps/nodereboot/install.yaml",
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
	klog.Background().Info("Starting", "version", flags.VersionLine("reboot-agent"), "node", o.agent.NodeName)
	err = preflight.Await(ctx, metadata, own, func() bool { return false })
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
