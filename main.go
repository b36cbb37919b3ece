// Command controller runs the controllers of this repository against a Kubernetes
// cluster until it is told to stop. See README.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	_ "time/tzdata" // the image has none

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientfeatures "k8s.io/client-go/features"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	componentbase "k8s.io/component-base/config"
	componentbaseoptions "k8s.io/component-base/config/options"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned"
	icecreamscheme "nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/scheme"
	externalversions "nicoleh.io/k8s-controller/pkg/generated/informers/externalversions"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kit/barrier"
	kitevents "nicoleh.io/k8s-controller/pkg/kit/events"
	"nicoleh.io/k8s-controller/pkg/kit/flags"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/leader"
	"nicoleh.io/k8s-controller/pkg/kit/lenient"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
	"nicoleh.io/k8s-controller/pkg/kit/serve"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
	"nicoleh.io/k8s-controller/pkg/nodereboot"
	"nicoleh.io/k8s-controller/pkg/podtimestamp"
	"nicoleh.io/k8s-controller/pkg/secretsync"
)

// controllers are all that this program can run.
var controllers = []struct {
	name          string
	onByDefault   bool
	isClusterWide bool // and cannot be restricted to one namespace
	wire          func(o options, config *rest.Config, recorder events.EventRecorder) (wired, error)
}{
	{"icecream", true, false, wireIcecream},
	{podtimestamp.Name, false, false, wirePodtimestamp},
	{secretsync.Name, false, true, wireSecretsync},
	{nodereboot.Name, false, true, wireNodereboot},
}

// wired is a controller that is ready to be started.
type wired struct {
	name string
	controller
	needs     []need    // before its informers can be started
	informers []starter // which a process that does not lead keeps warm, and what listens to them
}

// need is a resource that a controller reads, and the cache that it reads it from.
type need struct {
	preflight.Resource
	cache cache.Store
}

// pair says of each resource which informer's cache it is read from.
func pair(resources []preflight.Resource, informers ...cache.SharedIndexInformer) []need {
	var needs []need
	for i, of := range informers {
		needs = append(needs, need{resources[i], of.GetStore()})
	}
	return needs
}

// resources are those that the controller reads.
func (w wired) resources() []preflight.Resource {
	var resources []preflight.Resource
	for _, n := range w.needs {
		resources = append(resources, n.Resource)
	}
	return resources
}

// caches are those that the controller reads.
func (w wired) caches() []barrier.Cache {
	var caches []barrier.Cache
	for _, n := range w.needs {
		caches = append(caches, barrier.Cache{GroupVersionResource: n.GroupVersionResource, Namespace: n.Namespace, Selector: n.Selector, Store: n.cache})
	}
	return caches
}

type controller interface {
	// Run works until ctx ends, and returns when the last worker has finished.
	Run(ctx context.Context, workers int) error
	// Ready are done when the caches are filled.
	Ready() []cache.DoneChecker
	// Busy is how long the longest of the running syncs has been running.
	Busy() time.Duration
}

type starter interface {
	StartWithContext(ctx context.Context)
}

// single is an informer that no factory has made, as a starter and for others to
// use.
type single struct {
	cache.SharedIndexInformer
	resource schema.GroupResource
}

// StartWithContext implements starter.
func (i single) StartWithContext(ctx context.Context) { go i.RunWithContext(ctx) }

// Informer implements kubeinformers.GenericInformer.
func (i single) Informer() cache.SharedIndexInformer { return i.SharedIndexInformer }

// Lister implements kubeinformers.GenericInformer.
func (i single) Lister() cache.GenericLister {
	return cache.NewGenericLister(i.GetIndexer(), i.resource)
}

// options are the flags.
type options struct {
	kubeconfig  string
	master      string
	namespace   string
	qps         float64
	burst       int
	controllers string
	workers     int
	resync      time.Duration
	icecream    Config
	secretsync  secretsync.Config
	nodereboot  nodereboot.Config
	election    componentbase.LeaderElectionConfiguration
	serve       serve.Config
	stuckAfter  time.Duration
	logging     *logsapi.LoggingConfiguration
	version     bool
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err == nil && o.version {
		fmt.Println(flags.VersionLine("controller"))
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

// parse reads the flags.
func parse(args []string) (options, error) {
	o := options{
		election: componentbase.LeaderElectionConfiguration{
			LeaderElect:   true,
			LeaseDuration: metav1.Duration{Duration: 15 * time.Second},
			RenewDeadline: metav1.Duration{Duration: 10 * time.Second},
			RetryPeriod:   metav1.Duration{Duration: 2 * time.Second},
			ResourceLock:  resourcelock.LeasesResourceLock,
			ResourceName:  icecream.FieldManager,
		},
		logging: logsapi.NewLoggingConfiguration(),
	}
	fs := flag.NewFlagSet("controller", flag.ContinueOnError)
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "Path of a kubeconfig file. Without it, $KUBECONFIG is used, and without that, the service account of the Pod that this runs in.")
	fs.StringVar(&o.master, "master", "", "Address of the API server, in place of the one in the kubeconfig.")
	fs.StringVar(&o.namespace, "namespace", metav1.NamespaceAll, "The only namespace to work in. A Role in it is then permission enough. All namespaces if empty.")
	fs.Float64Var(&o.qps, "kube-api-qps", 0, "Requests per second to the API server, for each controller. 0 leaves it to the API server's priority and fairness.")
	fs.IntVar(&o.burst, "kube-api-burst", 0, "Requests that may exceed -kube-api-qps for a moment. 0 is twice -kube-api-qps.")
	fs.StringVar(&o.controllers, "controllers", "*", "The controllers to run: '*' is all that are on by default, 'name' is that one, too, and '-name' is not that one. On by default: "+strings.Join(onByDefault(), ", ")+".")
	fs.IntVar(&o.workers, "workers", 8, "How many objects each controller works on at the same time.")
	fs.DurationVar(&o.resync, "resync", 0, "How often to look at every object even if nothing has changed. Nothing depends on it; 0 is never.")
	fs.DurationVar(&o.icecream.StatusWindow, "status-window", 2*time.Second, "The least time between two writes of an Icecream's status that are not urgent, such as progress.")
	fs.DurationVar(&o.icecream.StallAfter, "stall-after", time.Minute, "How long something may keep Pods from running before their Icecream counts as Stalled, and how long it must have been complete after a crash before it is Ready.")
	fs.StringVar(&o.secretsync.SourceNamespace, "secretsync-source-namespace", "secretsync", "The namespace whose Secrets secretsync copies.")
	fs.StringVar(&o.secretsync.Annotation, "secretsync-annotation", "controller.nicoleh.io/secretsync", "The annotation of the Secrets that secretsync copies, and of the namespaces that it copies them to. Only a clear yes counts: no value, or \"true\".")
	fs.BoolVar(&o.secretsync.RequireReceivers, "secretsync-require-receivers", false, "Copy only Secrets that say, by annotation "+secretsync.AnnotationNamespaces+" or "+secretsync.AnnotationNamespaceSelector+", which namespaces may have them.")
	fs.StringVar(&o.secretsync.Instance, "secretsync-instance", "", "The name by which secretsync knows its own copies from those of another one with the same source namespace. Empty is -secretsync-annotation.")
	o.nodereboot.AddFlags(fs)
	fs.StringVar(&o.serve.BindAddress, "bind-address", ":8443", "The host:port for HTTPS: probes at /livez and /readyz, and metrics at /metrics for those whom the API server allows that. Empty is none.")
	fs.StringVar(&o.serve.InsecureBindAddress, "insecure-bind-address", "", "The host:port for the same by plain HTTP, without asking who it is. The host has to be a loopback address.")
	fs.StringVar(&o.serve.CertFile, "tls-cert-file", "", "The certificate for HTTPS, in PEM, with all intermediate ones. The file is read again when it has changed. Without it, one is made that is signed by itself.")
	fs.StringVar(&o.serve.KeyFile, "tls-private-key-file", "", "The private key of -tls-cert-file, in PEM.")
	fs.BoolVar(&o.serve.HTTP2, "enable-http2", false, "Also offer HTTP/2 on -bind-address.")
	fs.DurationVar(&o.stuckAfter, "stuck-after", 5*time.Minute, "How long the work on one object may take before /livez fails.")
	fs.BoolVar(&o.version, "version", false, "Print version, commit and Go version, and exit.")
	flags.AddLogging(fs, o.logging)
	election := pflag.NewFlagSet("", pflag.ContinueOnError)
	componentbaseoptions.BindLeaderElectionFlags(&o.election, election)
	election.CopyToGoFlagSet(fs)
	fs.Lookup("leader-elect-resource-namespace").Usage += " Default: that of the Pod that this runs in; elsewhere -namespace, or else kube-system."

	if err := flags.Parse(fs, args); err != nil {
		return o, err
	}
	return o, o.validate()
}

// validate says what is wrong with the flags.
func (o options) validate() error {
	switch {
	case o.workers < 1:
		return fmt.Errorf("-workers is %d, but has to be at least 1", o.workers)
	case o.resync < 0 || o.icecream.StatusWindow < 0 || o.icecream.StallAfter < 0:
		return errors.New("-resync, -status-window and -stall-after must not be negative")
	case o.stuckAfter <= 0:
		return errors.New("-stuck-after has to be more than nothing")
	case !(o.qps >= 0 && o.qps <= math.MaxInt32) || o.burst < 0:
		return errors.New("-kube-api-qps and -kube-api-burst must be numbers from 0 on")
	}
	enabled, err := o.isEnabled()
	if err != nil {
		return err
	}
	for _, c := range controllers {
		if enabled[c.name] && c.isClusterWide && o.namespace != metav1.NamespaceAll {
			return fmt.Errorf("-namespace=%s: %s cannot be restricted to one namespace, and needs a process of its own", o.namespace, c.name)
		}
	}
	return cmp.Or(o.secretsync.Validate(), o.nodereboot.Validate(), o.serve.Validate())
}

// isEnabled says of each controller whether it is to run.
func (o options) isEnabled() (map[string]bool, error) {
	enabled := map[string]bool{}
	asked := strings.Split(o.controllers, ",")
	for _, c := range controllers {
		enabled[c.name] = slices.Contains(asked, c.name) ||
			c.onByDefault && slices.Contains(asked, "*") && !slices.Contains(asked, "-"+c.name)
	}
	for _, item := range asked {
		if _, isKnown := enabled[strings.TrimPrefix(item, "-")]; !isKnown && item != "*" {
			return nil, fmt.Errorf("-controllers=%s: there is no controller %q; there are: %s", o.controllers, item, strings.Join(slices.Sorted(maps.Keys(enabled)), ", "))
		}
	}
	if !slices.Contains(slices.Collect(maps.Values(enabled)), true) {
		return nil, fmt.Errorf("-controllers=%s leaves nothing to run", o.controllers)
	}
	return enabled, nil
}

// onByDefault are the names of the controllers that are on by default.
func onByDefault() []string {
	var names []string
	for _, c := range controllers {
		if c.onByDefault {
			names = append(names, c.name)
		}
	}
	return names
}

// run runs the controllers until the first signal; a second one kills.
func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	if err := requireFeatures(); err != nil {
		return err
	}
	if err := logsapi.ValidateAndApply(o.logging, nil); err != nil {
		return err
	}
	defer klog.Flush()
	config, err := clientConfig(o)
	if err != nil {
		return err
	}
	p, err := assemble(o, config)
	if err != nil {
		return err
	}
	klog.Background().Info("Starting", "version", flags.VersionLine("controller"), "server", config.Host, "namespace", o.namespace, "controllers", o.controllers)
	if err := p.run(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	klog.Background().Info("Stopped")
	return nil
}

// requireFeatures says which feature of client-go is switched off, by an environment
// variable, that nothing here is safe without. AtomicFIFO has a cache say up to where
// it has seen what happened; without it, it would look as if every cache always had
// seen everything. All other features that can be switched off change what things
// cost, and not what is done: without WatchListClient, for one, caches may be filled
// from a past, which the barrier notices.
func requireFeatures() error {
	if !clientfeatures.FeatureGates().Enabled(clientfeatures.AtomicFIFO) {
		return fmt.Errorf("KUBE_FEATURE_%[1]s is false in the environment, but the controllers are not safe without client-go's feature %[1]s; remove it", clientfeatures.AtomicFIFO)
	}
	return nil
}

// process is all parts of this program.
type process struct {
	workers     int
	client      *kubernetes.Clientset // for what is looked at before a term
	metadata    metadata.Interface    // for the barrier alone
	controllers []wired
	recorder    *kitevents.Recorder
	election    *leader.Election // nil without
	server      *serve.Server
}

// assemble wires the parts to each other. Nothing has started afterwards, but the
// addresses to serve on are taken.
func assemble(o options, config *rest.Config) (*process, error) {
	p := &process{workers: o.workers}
	var err error
	if p.client, err = kubernetes.NewForConfig(protobuf(config)); err != nil {
		return nil, err
	}
	if p.metadata, err = metadata.NewForConfig(rest.AddUserAgent(rest.CopyConfig(config), "barrier")); err != nil {
		return nil, err
	}
	reviews, err := kubernetes.NewForConfig(rest.AddUserAgent(leader.Separate(protobuf(config)), "reviews"))
	if err != nil {
		return nil, err
	}
	if o.election.LeaderElect {
		o.election.ResourceNamespace = cmp.Or(o.election.ResourceNamespace, podNamespace(o), o.namespace, metav1.NamespaceSystem)
		lease, err := leader.NewClient(protobuf(config))
		if err != nil {
			return nil, err
		}
		if p.election, err = leader.New(o.election, lease, clock.RealClock{}); err != nil {
			return nil, fmt.Errorf("-leader-elect: %w", err)
		}
		config = rest.CopyConfig(config)
		p.election.Fence(config)
	}

	kube, err := kubernetes.NewForConfig(rest.AddUserAgent(protobuf(config), "events"))
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(kubescheme.AddToScheme(scheme), icecreamscheme.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	p.recorder = kitevents.New(kube.EventsV1(), scheme, clock.RealClock{}, worker.WithObserver(metrics.For("events").Sync))

	enabled, err := o.isEnabled()
	if err != nil {
		return nil, err
	}
	for _, c := range controllers {
		if !enabled[c.name] {
			continue
		}
		wired, err := c.wire(o, rest.AddUserAgent(rest.CopyConfig(config), c.name), p.recorder.For(c.name+"-controller"))
		if err != nil {
			return nil, fmt.Errorf("starting %s: %w", c.name, err)
		}
		wired.name = c.name
		p.controllers = append(p.controllers, wired)
	}
	v := flags.Version()
	metrics.Build(v.GitVersion, v.GitCommit)
	live, ready := p.checks(o.stuckAfter)
	p.server, err = serve.Listen(o.serve, reviews, live, ready)
	return p, err
}

// checks are what /livez and /readyz look at.
func (p *process) checks(stuckAfter time.Duration) (live, ready []serve.Check) {
	isMoving := func(busy func() time.Duration) func() error {
		return func() error {
			if busy := busy(); busy > stuckAfter {
				return fmt.Errorf("one object has been worked on for %s", busy.Round(time.Second))
			}
			return nil
		}
	}
	for _, c := range p.controllers {
		live = append(live, serve.Check{Name: c.name, Err: isMoving(c.Busy)})
		ready = append(ready, serve.Check{Name: c.name, Err: func() error {
			if slices.ContainsFunc(c.Ready(), func(filled cache.DoneChecker) bool { return !cache.IsDone(filled) }) {
				return errors.New("the caches are not filled yet")
			}
			return nil
		}})
	}
	live = append(live, serve.Check{Name: "events", Err: isMoving(p.recorder.Busy)})
	if p.election != nil {
		live = append(live, serve.Check{Name: "leader", Err: p.election.Check})
	}
	return live, ready
}

// run fills the caches, waits until this process leads, and has the controllers
// work until ctx ends. What is left running when it returns ends with the process.
func (p *process) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	serving, endServing := context.WithCancel(context.WithoutCancel(ctx))
	defer endServing()
	go func() {
		if err := p.server.Run(serving); err != nil {
			cancel(fmt.Errorf("serving probes and metrics: %w", err))
		}
	}()

	for _, c := range p.controllers {
		if err := preflight.Await(ctx, p.client.RESTClient(), clock.RealClock{}, c.resources()...); err != nil {
			return err
		}
	}
	for _, c := range p.controllers {
		for _, factory := range c.informers {
			factory.StartWithContext(ctx)
		}
		if !cache.WaitFor(ctx, "", c.Ready()...) {
			return context.Cause(ctx)
		}
	}
	if p.election == nil {
		return p.work(ctx)
	}
	return p.election.Run(ctx, p.work)
}

// work is one term: it runs the controllers, each as soon as its caches show what
// there was when the term began, until ctx ends or one of them fails, which takes the
// others with it. It returns when nothing will be written any more.
func (p *process) work(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	recording, endRecording := context.WithCancel(context.WithoutCancel(ctx))
	var recorder, running sync.WaitGroup
	recorder.Go(func() {
		if err := p.recorder.Run(recording, p.workers); err != nil {
			cancel(err)
		}
	})
	for _, c := range p.controllers {
		running.Go(func() {
			err := barrier.Await(ctx, p.metadata, clock.RealClock{}, c.caches()...)
			if err == nil {
				err = c.Run(ctx, p.workers)
			}
			if err != nil {
				cancel(fmt.Errorf("running %s: %w", c.name, err))
			}
		})
	}
	running.Wait()
	endRecording() // after the last of them has told its last
	recorder.Wait()
	return context.Cause(ctx)
}

// clientConfig says how to reach the cluster.
func clientConfig(o options) (*rest.Config, error) {
	config, err := flags.ClusterConfig(o.kubeconfig, o.master)
	if err == nil && o.qps > 0 {
		config.QPS, config.Burst = float32(o.qps), cmp.Or(o.burst, int(2*o.qps)+1)
	}
	return config, err
}

// podNamespace is the namespace of the Pod that this runs in; empty elsewhere.
func podNamespace(o options) string {
	if o.kubeconfig != "" || o.master != "" {
		return ""
	}
	namespace, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(namespace))
}

// wireIcecream wires the Icecream controller to its clients and informers.
func wireIcecream(o options, config *rest.Config, recorder events.EventRecorder) (wired, error) {
	custom, err := lenient.RESTClientFor(config, schema.GroupVersion(v1alpha1.GroupVersion), icecreamscheme.Codecs)
	if err != nil {
		return wired{}, err
	}
	client := versioned.New(custom)
	kube, err := kubernetes.NewForConfig(protobuf(config))
	if err != nil {
		return wired{}, err
	}

	permit := "kubectl apply -f artifacts/rbac-icecream.yaml, or -namespace for a single one"
	needs := []preflight.Resource{
		{GroupVersionResource: v1alpha1.Resource("icecreams").WithVersion(v1alpha1.GroupVersion.Version), Namespace: o.namespace, Define: "kubectl apply -f artifacts/examples/crd-icecream.yaml", Permit: permit},
		{GroupVersionResource: appsv1.SchemeGroupVersion.WithResource("deployments"), Namespace: o.namespace, Permit: permit},
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), Namespace: o.namespace, Selector: icecream.LabelIcecream, Permit: permit},
	}
	caches := informer.New(metrics.For("icecream").CacheHeard, clock.RealClock{})
	icecreams := externalversions.NewSharedInformerFactory(client, o.resync)
	informer.Install(caches, icecreams, needs[0], client.ControllerV1alpha1().Icecreams(o.namespace), &v1alpha1.Icecream{})
	others := kubeinformers.NewSharedInformerFactory(kube, o.resync)
	informer.Install(caches, others, needs[1], kube.AppsV1().Deployments(o.namespace), &appsv1.Deployment{})
	informer.Install(caches, others, needs[2], kube.CoreV1().Pods(o.namespace), &corev1.Pod{})

	controller, err := NewController(o.icecream, kube, client,
		icecreams.Controller().V1alpha1().Icecreams(),
		others.Apps().V1().Deployments(),
		others.Core().V1().Pods(),
		recorder,
		clock.RealClock{})
	if err != nil {
		return wired{}, err
	}
	metrics.Count("icecream_objects", "Icecreams, by status and reason of their Ready condition.", []string{"ready", "reason"}, controller.Count)

	return wired{
		controller: controller,
		needs: pair(needs,
			icecreams.Controller().V1alpha1().Icecreams().Informer(),
			others.Apps().V1().Deployments().Informer(),
			others.Core().V1().Pods().Informer()),
		informers: []starter{caches, icecreams, others},
	}, nil
}

// wirePodtimestamp wires the controller that stamps Pods to its client, for metadata
// alone, and its informer.
func wirePodtimestamp(o options, config *rest.Config, recorder events.EventRecorder) (wired, error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return wired{}, err
	}
	needs := []preflight.Resource{
		{GroupVersionResource: podtimestamp.Resource, Namespace: o.namespace, Permit: "kubectl apply -f artifacts/rbac-podtimestamp.yaml, or -namespace for a single one"},
	}
	caches := informer.New(metrics.For(podtimestamp.Name).CacheHeard, clock.RealClock{})
	pods := single{
		informer.NewInformer(caches, needs[0], client.Resource(podtimestamp.Resource).Namespace(o.namespace), &metav1.PartialObjectMetadata{}, o.resync),
		podtimestamp.Resource.GroupResource(),
	}
	controller, err := podtimestamp.New(podtimestamp.Config{}, client, pods, recorder, clock.RealClock{})
	if err != nil {
		return wired{}, err
	}
	return wired{controller: controller, needs: pair(needs, pods.Informer()), informers: []starter{caches, pods}}, nil
}

// wireSecretsync wires secretsync to its clients and informers.
func wireSecretsync(o options, config *rest.Config, recorder events.EventRecorder) (wired, error) {
	kube, err := kubernetes.NewForConfig(protobuf(config))
	if err != nil {
		return wired{}, err
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return wired{}, err
	}

	permit := "kubectl apply -f artifacts/rbac-secretsync.yaml"
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	needs := []preflight.Resource{
		{GroupVersionResource: secrets, Namespace: o.secretsync.SourceNamespace, Permit: permit},
		{GroupVersionResource: secrets, Selector: secretsync.LabelSourceNamespace + "=" + o.secretsync.SourceNamespace, Permit: permit},
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces"), Permit: permit},
	}
	caches := informer.New(metrics.For(secretsync.Name).CacheHeard, clock.RealClock{})
	sources := kubeinformers.NewSharedInformerFactory(kube, o.resync)
	informer.Install(caches, sources, needs[0], kube.CoreV1().Secrets(o.secretsync.SourceNamespace), &corev1.Secret{})
	copies := kubeinformers.NewSharedInformerFactory(kube, o.resync)
	informer.Install(caches, copies, needs[1], kube.CoreV1().Secrets(metav1.NamespaceAll), &corev1.Secret{})
	namespaces := kubeinformers.NewSharedInformerFactory(kube, o.resync)
	informer.Install(caches, namespaces, needs[2], kube.CoreV1().Namespaces(), &corev1.Namespace{})

	controller, err := secretsync.New(o.secretsync, kube, meta,
		sources.Core().V1().Secrets(),
		copies.Core().V1().Secrets(),
		namespaces.Core().V1().Namespaces(),
		recorder,
		clock.RealClock{})
	if err != nil {
		return wired{}, err
	}
	return wired{
		controller: controller,
		needs: pair(needs,
			sources.Core().V1().Secrets().Informer(),
			copies.Core().V1().Secrets().Informer(),
			namespaces.Core().V1().Namespaces().Informer()),
		informers: []starter{caches, sources, copies, namespaces},
	}, nil
}

// wireNodereboot wires the controller that says which nodes may reboot.
func wireNodereboot(o options, config *rest.Config, recorder events.EventRecorder) (wired, error) {
	kube, err := kubernetes.NewForConfig(protobuf(config))
	if err != nil {
		return wired{}, err
	}
	needs := []preflight.Resource{
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("nodes"), Permit: "kubectl apply -f artifacts/rbac-nodereboot.yaml"},
		{GroupVersionResource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Namespace: o.nodereboot.AgentNamespace, Permit: "kubectl apply -f artifacts/reboot-agent.yaml"},
	}
	caches := informer.New(metrics.For(nodereboot.Name).CacheHeard, clock.RealClock{})
	informers := kubeinformers.NewSharedInformerFactory(kube, o.resync)
	informer.Install(caches, informers, needs[0], kube.CoreV1().Nodes(), &corev1.Node{})
	informer.Install(caches, informers, needs[1], kube.CoordinationV1().Leases(o.nodereboot.AgentNamespace), &coordinationv1.Lease{})
	nodes, leases := informers.Core().V1().Nodes(), informers.Coordination().V1().Leases()
	controller, err := nodereboot.New(o.nodereboot, kube, nodes, leases, recorder, clock.RealClock{})
	return wired{
		controller: controller,
		needs:      pair(needs, nodes.Informer(), leases.Informer()),
		informers:  []starter{caches, informers},
	}, err
}

// protobuf is the config for clients of built-in types, which are smaller and
// faster to read that way than as JSON.
func protobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}
