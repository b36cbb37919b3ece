// Package manager is the process around controllers: it parses flags, makes clients, waits
// for permissions, takes part in the election, serves probes and metrics, and starts and
// stops all of that in a safe order. It knows a controller only by its [Descriptor].
//
// [Manager.Run] takes these steps:
//
//  1. Parse the flags, make clients, the election and each controller with its event recorder,
//     and open the addresses to serve on. Nothing has started yet.
//  2. Serve probes and metrics. /livez succeeds from now on.
//  3. For each controller, wait until the API server lets this process list every resource
//     that it needs. A controller that waits does not hold up the others.
//  4. Once one controller can list everything, wait until this process leads. /readyz succeeds
//     when every controller can, and the Lease was read or created once: the process can do
//     its work if it is elected.
//  5. Start the informers of each controller that can list, and run it. It syncs nothing before
//     all of its caches are filled. The first list of an informer is a consistent read, so it
//     shows what the previous leader wrote. A process on standby holds no watch and no object.
//
// When ctx ends or a controller fails, no further sync begins. The process waits for the
// running ones, sends the last events, releases the Lease, and then stops the informers, which
// only read, and serving. If the Lease is lost, Run returns at once and the process has to
// end; the fence of package leader blocks its writes until then.
package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/server/healthz"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/kubernetes"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // users of a kubeconfig, as kubectl knows them
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/internal/flags"
	"nicoleh.io/k8s-controller/internal/leader"
	"nicoleh.io/k8s-controller/internal/serve"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
)

// Manager is a program that runs controllers.
type Manager struct {
	// Name is the name of the program and, in capitals, the prefix of its environment
	// variables.
	Name string
	// LeaseName is the default name of the Lease for the election.
	LeaseName string
	// Controllers are the controllers that the program runs.
	Controllers []Descriptor
}

// Main is the program's main function, which calls Run with the process's arguments. See
// [flags.Main].
func (m Manager) Main() {
	var o options
	sets := m.flagSets(&o)
	flags.Main(m.Name, func(ctx context.Context) error { return m.run(ctx, o) }, sets...)
}

// Run runs the controllers, as configured by the flags in args and the environment, until
// ctx ends. It returns a one-line error if the flags are wrong, or if something fails
// that a restart of the process can fix. Unlike Main, it does not configure the log.
func (m Manager) Run(ctx context.Context, args []string) error {
	var o options
	if err := flags.Parse(m.Name, args, m.flagSets(&o)...); err != nil {
		return err
	}
	return m.run(ctx, o)
}

func (m Manager) run(ctx context.Context, o options) error {
	if err := m.validate(o); err != nil {
		return err
	}
	if err := requireFeatures(); err != nil {
		return err
	}
	p, err := m.assemble(o)
	if err != nil {
		return err
	}
	kubecontext, cluster, account := o.cluster.Names()
	klog.Background().Info("Starting", "version", flags.VersionLine(m.Name), "server", p.server, "context", kubecontext, "cluster", cluster, "account", account, "namespace", o.namespace)
	if err := p.run(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	klog.Background().Info("Stopped")
	return nil
}

// requireFeatures returns an error if the environment disables a feature of client-go that
// the controllers are not safe without. Without AtomicFIFO, a cache does not know its
// resource version, and would always seem to show the last write.
func requireFeatures() error {
	if !clientfeatures.FeatureGates().Enabled(clientfeatures.AtomicFIFO) {
		return fmt.Errorf("KUBE_FEATURE_%[1]s is false in the environment, but the controllers are not safe without client-go's feature %[1]s; remove it", clientfeatures.AtomicFIFO)
	}
	return nil
}

// informersTimeout is how long informers may take to end.
const informersTimeout = time.Second

// namespaceInterval is the time between two looks for a namespace that is missing.
const namespaceInterval = 10 * time.Second

// process is a running program.
type process struct {
	server      string // the address of the API server
	namespace   string // the only one to work in; all if empty
	workers     int
	metadata    metadata.Interface // for preflight
	controllers []running
	election    *leader.Election // nil if there is none
	http        *serve.Server
	informers   sync.WaitGroup
}

// running is a controller that is ready to be started.
type running struct {
	Controller
	*Dependencies
	name     string
	recorder *recorder
	canList  chan struct{} // closed once this process can list what the controller needs
}

// assemble makes the parts (step 1). It starts nothing, but opens the addresses to serve on.
func (m Manager) assemble(o options) (*process, error) {
	config, err := clientConfig(o)
	if err != nil {
		return nil, err
	}
	p := &process{server: config.Host, namespace: o.namespace, workers: o.workers}
	if p.metadata, err = metadata.NewForConfig(named(config, "preflight")); err != nil {
		return nil, err
	}
	reviewer, err := kubernetes.NewForConfig(reviewConfig(config))
	if err != nil {
		return nil, err
	}
	events := rest.CopyConfig(config)
	if o.election.LeaderElect {
		o.election.ResourceNamespace = leaseNamespace(o)
		if p.election, err = leader.New(o.election, config); err != nil {
			return nil, fmt.Errorf("-leader-elect: %w", err)
		}
		config = rest.CopyConfig(config)
		p.election.Fence(config)
		p.election.FenceEvents(events)
	}
	scheme, err := m.scheme()
	if err != nil {
		return nil, err
	}
	for _, d := range m.Controllers {
		recorder, err := newRecorder(events, scheme)
		if err != nil {
			return nil, err
		}
		c, err := d.assemble(o, config, recorder)
		if err != nil {
			return nil, fmt.Errorf("making %s: %w", d.Name, err)
		}
		p.controllers = append(p.controllers, c)
	}
	v := flags.Version()
	metrics.Build(v.GitVersion, v.GitCommit)
	metrics.Count("controller_cache_resource_version", "The resource version up to which each cache has heard from the API server, by an event, a bookmark (about one a minute) or a list. One that stays the same for minutes belongs to a cache that has lost its connection.",
		[]string{"controller", "resource", "selector"}, p.countVersions)
	live, ready := p.checks(o.stuckAfter)
	p.http, err = serve.Listen(o.serve, reviewer, live, ready)
	return p, err
}

// assemble makes the clients and the controller. All of its clients share a rate limit.
func (d Descriptor) assemble(o options, config *rest.Config, recorder *recorder) (running, error) {
	config = named(config, d.Name)
	controllerTransport(config)
	if d.Confidential {
		config.WarningHandler, config.WarningHandlerWithContext = rest.NoWarnings{}, nil
	}
	if config.QPS > 0 {
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, config.Burst)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return running{}, err
	}
	metadata, err := metadata.NewForConfig(config)
	if err != nil {
		return running{}, err
	}
	given := &Dependencies{
		Kube:      kube,
		Metadata:  metadata,
		Config:    config,
		Namespace: o.namespace,
		Resync:    o.resync,
		Recorder:  recorder.recorderFor(d.Name + "-controller"),
	}
	c, err := d.New(given)
	return running{c, given, d.Name, recorder, make(chan struct{})}, err
}

// countVersions reports the resource version of each cache, and the oldest of caches that differ only in namespace or
// fields: a duplicate series breaks every scrape.
func (p *process) countVersions(add func(n float64, values ...string)) {
	type series struct{ controller, resource, selector string }
	oldest := map[series]float64{}
	for _, c := range p.controllers {
		for _, w := range c.caches {
			key := series{c.name, w.Resource.Resource, w.Selector}
			var version float64
			if _, err := fmt.Sscan(w.LastSyncResourceVersion(), &version); err != nil {
				continue
			}
			if earlier, isThere := oldest[key]; !isThere || version < earlier {
				oldest[key] = version
			}
		}
	}
	for s, version := range oldest {
		add(version, s.controller, s.resource, s.selector)
	}
}

// checks returns the checks of /livez and /readyz.
func (p *process) checks(stuckAfter time.Duration) (live, ready []healthz.HealthChecker) {
	for _, c := range p.controllers {
		live = append(live, healthz.NamedCheck(c.name, func(*http.Request) error {
			if busy := c.Busy(); busy > stuckAfter {
				return fmt.Errorf("a worker has been busy with one object for %s", busy.Round(time.Second))
			}
			return nil
		}))
	}
	if p.election != nil {
		live = append(live, healthz.NamedCheck("leaderElection", p.election.Check))
	}
	ready = []healthz.HealthChecker{healthz.NamedCheck("preflight", func(*http.Request) error {
		for _, c := range p.controllers {
			select {
			case <-c.canList:
			default:
				return fmt.Errorf("%s cannot list everything that it needs yet", c.name)
			}
		}
		return nil
	})}
	if p.election != nil {
		ready = append(ready, healthz.NamedCheck("lease", func(*http.Request) error { return p.election.Ready() }))
	}
	return live, ready
}

// run takes the steps 2 to 5. What still runs when it returns, after ErrLost, ends with the
// process.
func (p *process) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	serving, endServing := context.WithCancel(context.WithoutCancel(ctx))
	var server, preflights sync.WaitGroup
	server.Go(func() {
		if err := p.http.Run(serving); err != nil {
			cancel(fmt.Errorf("serving probes and metrics: %w", err))
		}
	})
	defer server.Wait()
	defer endServing()
	for _, c := range p.controllers {
		defer c.recorder.Shutdown() // has goroutines even if this process never led
	}
	defer preflights.Wait()
	defer cancel(nil) // first of all, so that the work ends if the Lease is lost

	if p.namespace != metav1.NamespaceAll {
		preflights.Go(func() { p.awaitNamespace(ctx) })
	}
	canWork := make(chan struct{})
	first := sync.OnceFunc(func() { close(canWork) })
	hasWorked := func() bool {
		select {
		case <-canWork:
			return true
		default:
			return false
		}
	}
	for _, c := range p.controllers {
		preflights.Go(func() {
			if err := c.awaitResources(ctx, p.metadata, hasWorked); err != nil {
				cancel(err)
				return
			}
			close(c.canList)
			first()
		})
	}
	select {
	case <-canWork:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	informing, endInforming := context.WithCancel(context.WithoutCancel(ctx))
	defer endInforming()
	err := p.elect(ctx, func(ctx context.Context) error { return p.work(ctx, informing) })
	if !errors.Is(err, leader.ErrLost) {
		endInforming()
		p.awaitInformers(ctx)
	}
	return cmp.Or(err, context.Cause(ctx)) // the cause, if serving failed on standby
}

// awaitResources waits until this process can list everything that the controller needs.
func (c running) awaitResources(ctx context.Context, client metadata.Interface, hasWorked func() bool) error {
	var resources []preflight.Resource
	for _, w := range c.caches {
		resources = append(resources, w.Resource)
	}
	for _, resource := range append(resources, c.needs...) {
		if err := preflight.Await(ctx, client, resource, hasWorked); err != nil {
			return err
		}
	}
	return nil
}

// awaitNamespace logs, once a minute, while the namespace to work in does not exist: lists of its
// objects are just empty. Nothing else waits for it, because it can be created later.
func (p *process) awaitNamespace(ctx context.Context) {
	namespaces := corev1.SchemeGroupVersion.WithResource("namespaces")
	missing := preflight.Waiting{Resource: preflight.Resource{GroupVersionResource: namespaces, Namespace: p.namespace}}
	for ctx.Err() == nil {
		_, err := p.metadata.Resource(namespaces).Get(ctx, p.namespace, metav1.GetOptions{})
		switch {
		case err == nil, apierrors.IsNotFound(err):
			missing.Note(ctx, err) //nolint:errcheck // it is not hopeless
		case apierrors.IsForbidden(err):
			return // This process cannot know.
		}
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(namespaceInterval):
		}
	}
}

// elect calls work when this process leads.
func (p *process) elect(ctx context.Context, work func(context.Context) error) error {
	if p.election == nil {
		return work(ctx)
	}
	return p.election.Run(ctx, work)
}

// work is one term: it runs the controllers until ctx ends or one of them fails, which
// stops the others. When it returns, no controller writes any more. The informers run until
// informing ends.
func (p *process) work(ctx, informing context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var working sync.WaitGroup
	for _, c := range p.controllers {
		working.Go(func() {
			select {
			case <-c.canList:
			case <-ctx.Done():
				return
			}
			defer c.recorder.start()() // after the controller has recorded its last event
			p.informers.Go(c.StartCaches(informing, c.Controller))
			if err := c.Run(ctx, p.workers); err != nil {
				cancel(fmt.Errorf("running %s: %w", c.name, err))
			}
		})
	}
	working.Wait()
	cancel(nil)
	return context.Cause(ctx)
}

// awaitInformers waits until the informers have ended, for a second at most: after a
// response 429, client-go's reflector sleeps for up to a minute, whatever its context says.
func (p *process) awaitInformers(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.informers.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(informersTimeout):
		klog.FromContext(ctx).V(2).Info("Stopped without waiting for informers that sleep")
	}
}

// clientConfig returns the config for clients of the cluster.
func clientConfig(o options) (*rest.Config, error) {
	config, err := o.cluster.Config()
	if err == nil && o.qps > 0 {
		config.QPS, config.Burst = float32(o.qps), cmp.Or(o.burst, int(2*o.qps)+1)
	}
	return config, err
}

// reviewConfig returns the config for the client that reviews requests for metrics. Anyone
// can cause reviews, so its limits are low.
func reviewConfig(config *rest.Config) *rest.Config {
	config = named(config, "reviews")
	config.QPS, config.Burst, config.RateLimiter = 10, 10, nil
	config.Timeout = 10 * time.Second
	config.WarningHandler = rest.NoWarnings{} // which could quote a client's token
	return config
}

// named returns a copy of the config with a client's name in the user agent, for the API server's logs.
func named(config *rest.Config, client string) *rest.Config {
	return rest.AddUserAgent(rest.CopyConfig(config), client)
}

// leaseNamespace returns the namespace of the Lease: by default the namespace of this process's Pod, or else
// kube-system. It does not depend on -namespace, so that a process for one namespace and a process for all do not both
// work there.
func leaseNamespace(o options) string {
	if o.election.ResourceNamespace != "" {
		return o.election.ResourceNamespace
	}
	namespace, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil || !o.cluster.IsOfPod() {
		return metav1.NamespaceSystem
	}
	return strings.TrimSpace(string(namespace))
}

// scheme returns the kinds of all objects that the controllers record events about.
func (m Manager) scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	errs := []error{kubescheme.AddToScheme(scheme)}
	for _, d := range m.Controllers {
		if d.AddToScheme != nil {
			errs = append(errs, d.AddToScheme(scheme))
		}
	}
	return scheme, errors.Join(errs...)
}
