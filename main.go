// Command controller runs the controllers of this repository against a Kubernetes
// cluster until it is told to stop. See README.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // -logging-format=json
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/scheme"
	externalversions "nicoleh.io/k8s-controller/pkg/generated/informers/externalversions"
	"nicoleh.io/k8s-controller/pkg/icecream"
)

// options are the flags.
type options struct {
	kubeconfig string
	master     string
	namespace  string
	qps        float64
	burst      int
	workers    int
	resync     time.Duration
	icecream   Config
	logging    *logsapi.LoggingConfiguration
	version    bool
}

// controllers are all that this program can run, by name: each start wires one
// to a cluster, and run then runs it until its context ends.
var controllers = []struct {
	name  string
	start func(o options, config *rest.Config) (run func(context.Context) error, err error)
}{
	{"icecream", startIcecream},
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err == nil && o.version {
		fmt.Println(versionLine())
		return
	}
	if err == nil {
		err = run(o)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "controller: %v\n", err)
		os.Exit(1)
	}
}

// parse reads the flags from the command line and, where that has none, from the
// environment: -kube-api-qps is CONTROLLER_KUBE_API_QPS there.
func parse(args []string) (options, error) {
	o := options{logging: logsapi.NewLoggingConfiguration()}
	flags := flag.NewFlagSet("controller", flag.ContinueOnError)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Path of a kubeconfig file. Without it, $KUBECONFIG is used, and without that, the service account of the Pod that this runs in.")
	flags.StringVar(&o.master, "master", "", "Address of the API server, in place of the one in the kubeconfig.")
	flags.StringVar(&o.namespace, "namespace", metav1.NamespaceAll, "The only namespace to work in. A Role in it is then permission enough. All namespaces if empty.")
	flags.Float64Var(&o.qps, "kube-api-qps", 0, "Requests per second to the API server, for each controller. 0 leaves it to the API server's priority and fairness.")
	flags.IntVar(&o.burst, "kube-api-burst", 0, "Requests that may exceed -kube-api-qps for a moment. 0 is twice -kube-api-qps.")
	flags.IntVar(&o.workers, "workers", 8, "How many objects each controller works on at the same time.")
	flags.DurationVar(&o.resync, "resync", 0, "How often to look at every object even if nothing has changed. Nothing depends on it; 0 is never.")
	flags.DurationVar(&o.icecream.StatusWindow, "status-window", 2*time.Second, "The least time between two writes of an Icecream's status that are not urgent, such as progress.")
	flags.DurationVar(&o.icecream.StallAfter, "stall-after", time.Minute, "How long something may keep Pods from running before their Icecream counts as Stalled.")
	flags.BoolVar(&o.version, "version", false, "Print version, commit and Go version, and exit.")
	all := flag.NewFlagSet("", flag.ContinueOnError)
	logsapi.AddGoFlags(o.logging, all)
	for _, name := range []string{"logging-format", "v", "vmodule"} { // the others are alpha
		f := all.Lookup(name)
		flags.Var(f.Value, f.Name, f.Usage)
	}

	var err error
	flags.VisitAll(func(f *flag.Flag) {
		name := "CONTROLLER_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if value, ok := os.LookupEnv(name); ok && err == nil {
			if err = flags.Set(f.Name, value); err != nil {
				err = fmt.Errorf("invalid value %q in $%s: %w", value, name, err)
			}
		}
	})
	if err == nil {
		flags.SetOutput(io.Discard) // the error says it in one line
		err = flags.Parse(args)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(os.Stdout)
		flags.Usage()
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q: every option begins with a dash", flags.Arg(0))
	case o.workers < 1:
		err = fmt.Errorf("-workers is %d, but has to be at least 1", o.workers)
	case o.resync < 0 || o.icecream.StatusWindow < 0 || o.icecream.StallAfter < 0:
		err = errors.New("-resync, -status-window and -stall-after must not be negative")
	case !(o.qps >= 0 && o.qps <= math.MaxInt32) || o.burst < 0:
		err = errors.New("-kube-api-qps and -kube-api-burst must be numbers from 0 on")
	}
	return o, err
}

// run runs the controllers until the first signal; a second one kills.
func run(o options) error {
	signalled, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(signalled, stop)

	if err := logsapi.ValidateAndApply(o.logging, nil); err != nil {
		return err
	}
	defer klog.Flush()
	config, err := clientConfig(o)
	if err != nil {
		return err
	}
	logger := klog.Background()
	logger.Info("Starting", "version", versionLine(), "server", config.Host, "namespace", o.namespace)

	// One controller that ends takes the others with it.
	ctx, cancel := context.WithCancelCause(signalled)
	defer cancel(nil)
	var running sync.WaitGroup
	for _, controller := range controllers {
		run, err := controller.start(o, rest.AddUserAgent(rest.CopyConfig(config), controller.name))
		if err != nil {
			return fmt.Errorf("starting %s: %w", controller.name, err)
		}
		running.Go(func() {
			if err := run(ctx); err != nil {
				cancel(fmt.Errorf("running %s: %w", controller.name, err))
			}
		})
	}
	running.Wait()
	if signalled.Err() == nil {
		return context.Cause(ctx)
	}
	logger.Info("Stopped")
	return nil
}

// versionLine says what was built: as the linker was told by the Makefile, or
// else as the Go toolchain found it out.
func versionLine() string {
	v := version.Get()
	if info, ok := debug.ReadBuildInfo(); ok && strings.Contains(v.GitCommit, "$Format") {
		v.GitVersion, v.GitCommit = info.Main.Version, "unknown"
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				v.GitCommit = setting.Value
			}
		}
	}
	return fmt.Sprintf("controller %s, commit %s, %s, %s", v.GitVersion, v.GitCommit, v.GoVersion, v.Platform)
}

// clientConfig says how to reach the cluster.
func clientConfig(o options) (*rest.Config, error) {
	config, err := func() (*rest.Config, error) {
		if o.kubeconfig != "" || o.master != "" {
			return clientcmd.BuildConfigFromFlags(o.master, o.kubeconfig)
		}
		if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" {
			return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
		}
		return rest.InClusterConfig()
	}()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("no cluster to connect to: give -kubeconfig, set $KUBECONFIG, or run in a Pod")
	}
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("the kubeconfig %q is missing or names no cluster", cmp.Or(o.kubeconfig, os.Getenv(clientcmd.RecommendedConfigPathEnvVar)))
	}
	if err != nil {
		return nil, fmt.Errorf("reading the client configuration: %w", err)
	}
	config.QPS, config.Burst = float32(o.qps), o.burst
	if o.qps == 0 {
		config.QPS = -1 // zero would be client-go's default of 5
	} else if o.burst == 0 {
		config.Burst = int(2*o.qps) + 1
	}
	return config, nil
}

// startIcecream wires the Icecream controller to its clients and informers.
func startIcecream(o options, config *rest.Config) (func(context.Context) error, error) {
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	kube, err := kubernetes.NewForConfig(protobuf(config))
	if err != nil {
		return nil, err
	}

	icecreams := externalversions.NewSharedInformerFactoryWithOptions(client, o.resync, externalversions.WithNamespace(o.namespace))
	deployments := kubeinformers.NewSharedInformerFactoryWithOptions(kube, o.resync, kubeinformers.WithNamespace(o.namespace))
	pods := kubeinformers.NewSharedInformerFactoryWithOptions(kube, o.resync, kubeinformers.WithNamespace(o.namespace),
		kubeinformers.WithTweakListOptions(func(list *metav1.ListOptions) { list.LabelSelector = icecream.LabelIcecream }))

	broadcaster := events.NewBroadcaster(unlessTerminating{&events.EventSinkImpl{Interface: kube.EventsV1()}})
	controller, err := NewController(o.icecream, kube, client,
		icecreams.Controller().V1alpha1().Icecreams(),
		deployments.Apps().V1().Deployments(),
		pods.Core().V1().Pods(),
		broadcaster.NewRecorder(scheme.Scheme, icecream.FieldManager),
		clock.RealClock{})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
			return err
		}
		defer broadcaster.Shutdown()
		factories := []interface {
			StartWithContext(context.Context)
			Shutdown()
		}{icecreams, deployments, pods}
		ctx, cancel := context.WithCancel(ctx)
		for _, factory := range factories {
			factory.StartWithContext(ctx)
			defer factory.Shutdown()
		}
		defer cancel() // before the factories wait for their informers
		return controller.Run(ctx, o.workers)
	}, nil
}

// unlessTerminating is a sink that does not mind when a namespace takes no more
// events because it is going away, and all its events with it.
type unlessTerminating struct{ events.EventSink }

func (s unlessTerminating) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	created, err := s.EventSink.Create(ctx, event)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return event, nil
	}
	return created, err
}

// protobuf is the config for clients of built-in types, which are smaller and
// faster to read that way than as JSON.
func protobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}
