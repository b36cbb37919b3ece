// Command reboot-agent reboots the node that it runs on when the controller
// nodereboot allows it. See package agent, and README.md.
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
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/flags"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
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

	watchSentinel bool
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
	if err == nil {
		err = run(o)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "reboot-agent: %v\n", err)
		os.Exit(1)
	}
}

// flagSet returns the flags, which set o.
func flagSet(o *options) *flag.FlagSet {
	o.logging = logsapi.NewLoggingConfiguration()
	fs := flag.NewFlagSet("reboot-agent", flag.ContinueOnError)
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "Path of a kubeconfig file. Without it, $KUBECONFIG is used, and without that, the service account of the Pod that this runs in.")
	fs.StringVar(&o.agent.NodeName, "node-name", os.Getenv("NODE_NAME"), "The name of the Node that this runs on. Default: $NODE_NAME.")
	fs.StringVar(&o.agent.LeaseNamespace, "lease-namespace", os.Getenv("POD_NAMESPACE"), "The namespace of the Lease by which the agent says that it runs. Default: $POD_NAMESPACE.")
	fs.StringVar(&o.agent.BootIDFile, "boot-id-file", "/proc/sys/kernel/random/boot_id", "The file whose content is another after every boot.")
	fs.StringVar(&o.agent.SentinelFile, "sentinel-file", "/var/run/reboot-required", "The file that asks for a reboot by being there. If it outlives that, it asks again after -retry-after. Empty is none.")
	fs.StringVar(&o.agent.SentinelState, "sentinel-state", "", "The file in which another process, with -watch-sentinel, says whether -sentinel-file is there. Empty is to look for it.")
	fs.BoolVar(&o.watchSentinel, "watch-sentinel", false, "Write to -sentinel-state whether -sentinel-file is there, and do nothing else. It takes no privileges, and no API server.")
	fs.DurationVar(&o.agent.LookEvery, "look-every", time.Minute, "How often to look at these files.")
	fs.DurationVar(&o.agent.Limits.Drain, "drain-timeout", 15*time.Minute, "How long it may take to drain the node before it is uncordoned, and the reboot is given up.")
	fs.DurationVar(&o.agent.Limits.RetryAfter, "retry-after", time.Hour, "How long after a drain that was given up, or a reboot that the sentinel file has outlived, to ask for another.")
	fs.DurationVar(&o.agent.Limits.Reboot, "reboot-timeout", 10*time.Minute, "How long the system may take to go down before the reboot command is run again.")
	fs.BoolVar(&o.agent.Force, "drain-force", false, "Also evict Pods that no controller will make anew.")
	fs.BoolVar(&o.agent.DeleteEmptyDirData, "drain-delete-emptydir-data", true, "Also evict Pods that have an emptyDir, whose content is lost.")
	fs.StringVar(&o.command, "reboot-command", "", "The program that reboots the system, with its arguments, separated by spaces. Without it, process 1 is told to, which has to be the host's systemd.")
	fs.BoolVar(&o.agent.DryRun, "dry-run", false, "Ask the API server whether it would allow each step, log them, and change nothing.")
	fs.BoolVar(&o.version, "version", false, "Print version, commit and Go version, and exit.")
	flags.AddLogging(fs, o.logging)
	return fs
}

// parse reads the flags.
func parse(args []string) (options, error) {
	var o options
	fs := flagSet(&o)
	if err := flags.Parse(fs, args); err != nil || o.version {
		return o, err
	}
	switch limits := o.agent.Limits; {
	case o.watchSentinel && (o.agent.SentinelFile == "" || o.agent.SentinelState == "" || o.agent.LookEvery <= 0):
		return o, errors.New("-watch-sentinel takes -sentinel-file, -sentinel-state, and a -look-every of more than nothing")
	case o.watchSentinel:
		return o, nil
	case o.agent.NodeName == "":
		return o, errors.New("-node-name, or $NODE_NAME, has to say which node this runs on")
	case o.agent.LeaseNamespace == "":
		return o, errors.New("-lease-namespace, or $POD_NAMESPACE, has to say where to report that the agent runs")
	case o.agent.LookEvery <= 0 || limits.Drain <= 0 || limits.Reboot <= 0 || limits.RetryAfter <= 0:
		return o, errors.New("-look-every, -drain-timeout, -reboot-timeout and -retry-after have to be more than nothing")
	}
	return o, nil
}

// run runs the agent until the first signal; a second one kills.
func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := logsapi.ValidateAndApply(o.logging, nil); err != nil {
		return err
	}
	defer klog.Flush()

	if o.watchSentinel {
		return agent.WatchSentinel(ctx, o.agent.SentinelFile, o.agent.SentinelState, o.agent.LookEvery, clock.RealClock{})
	}
	config, err := flags.ClusterConfig(o.kubeconfig, "")
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	caches := informer.New(func(_, _ string, _ time.Time) {}, clock.RealClock{}) // for its log alone
	nodes := kubeinformers.NewSharedInformerFactory(kube, 0)
	informer.Install(caches, nodes, preflight.Resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("nodes"),
		Fields:               fields.OneTermEqualSelector(metav1.ObjectNameField, o.agent.NodeName).String(),
		Permit:               "kubectl apply -f artifacts/reboot-agent.yaml",
	}, kube.CoreV1().Nodes(), &corev1.Node{})
	var host agent.Rebooter = agent.NewSystemd()
	if words := strings.Fields(o.command); len(words) > 0 {
		host = agent.Command(words)
	}
	a, err := agent.New(o.agent, kube, nodes.Core().V1().Nodes(), host, clock.RealClock{})
	if err != nil {
		return err
	}
	klog.Background().Info("Starting", "version", flags.VersionLine("reboot-agent"), "node", o.agent.NodeName, "dryRun", o.agent.DryRun)
	caches.StartWithContext(ctx)
	nodes.StartWithContext(ctx)
	if err := a.Run(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	klog.Background().Info("Stopped")
	return nil
}
