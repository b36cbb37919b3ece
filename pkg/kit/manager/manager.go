// Package manager is the process around controllers: it parses flags, makes clients, fills
// caches, takes part in the leader election, serves probes and metrics, and starts and
// stops all of that in a safe order.
//
// It knows a controller only by its [Descriptor]. A program is a [Manager] with a list of
// these; the example has one in full. [Manager.Run] then takes these steps:
//
//  1. Parse and validate the flags, from the command line and the environment.
//  2. Wire everything: clients, the election, the recorder of events, and each controller,
//     by the New function of its descriptor. Nothing has started yet, but the addresses
//     are open.
//  3. Start to serve probes, metrics, and pages. /livez succeeds from now on.
//  4. Wait until the API server lets this process list every resource (package preflight).
//  5. Start the informers, and wait until their caches are filled. /readyz succeeds from
//     now on.
//  6. Wait until this process leads (package leader). Everything before this step also
//     happens on standby, so that a new leader can begin at once.
//  7. Start the recorder of events. For each controller, wait until its caches show
//     everything that the API server had stored when the term began (package barrier),
//     and then run its workers. Without an election, the term begins with the process, and
//     a cache that was filled by a consistent read shows that already.
//
// When ctx ends, or a controller fails, it stops in the opposite order, so that the next
// leader finds nothing that is still being written:
//
//  1. No worker begins another sync, and the informers stop. Wait until each worker has
//     returned from its last sync, which may take five seconds.
//  2. Stop the recorder, which takes ten seconds at most to write the rest of the events.
//  3. Release the lease, unless a write has just ended without a response, which the API
//     server may still carry out.
//  4. Stop the server.
//
// There is one exception: if the lease is lost, Run returns at once, without waiting for
// the workers, and the process has to end. Until then, the fence of package leader blocks
// its writes.
package manager

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/barrier"
	"nicoleh.io/k8s-controller/pkg/kit/events"
	"nicoleh.io/k8s-controller/pkg/kit/flags"
	"nicoleh.io/k8s-controller/pkg/kit/footprint"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/leader"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
	"nicoleh.io/k8s-controller/pkg/kit/serve"
	"nicoleh.io/k8s-controller/pkg/kit/typed"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// Manager is a program that runs controllers.
type Manager struct {
	// Name is the name of the program, and in capitals the prefix of its environment
	// variables.
	Name string
	// LeaseName is the name of the Lease for the election, unless the flag
	// -leader-elect-resource-name sets another.
	LeaseName string
	// FormerLeaseName is the name of the Lease for the election in earlier versions of
	// the program. While it exists, a process leads only if it holds that one, too. It
	// is empty if LeaseName has never changed.
	FormerLeaseName string
	// Controllers are all controllers that the program can run.
	Controllers []Descriptor
}

// Main configures the process's logger by the flags, and calls Run with the arguments of
// the process until the first SIGINT or SIGTERM. If that fails, it prints the error and
// exits with code 1. A second signal kills the process. Meanwhile, the process takes
// little of its node while it has little to do (package footprint).
func (m Manager) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	go footprint.Reduce(ctx, clock.RealClock{})
	var applied *logsapi.LoggingConfiguration
	err := m.run(ctx, os.Args[1:], func(logging *logsapi.LoggingConfiguration) error {
		if err := logsapi.ValidateAndApply(logging, nil); err != nil {
			return err
		}
		applied = logging
		return nil
	})
	klog.Flush()
	if err != nil {
		flags.PrintError(m.Name, applied, err)
		os.Exit(1)
	}
}

// Run runs the controllers, as configured by the flags in args and the environment, until
// ctx ends. It returns an error of one line if the flags are wrong, or if something fails
// that a restart of the process may fix. Unlike Main, it leaves the process's logger and
// the Go runtime's settings as they are.
func (m Manager) Run(ctx context.Context, args []string) error {
	return m.run(ctx, args, func(*logsapi.LoggingConfiguration) error { return nil })
}

// run is Run with a function that configures the logger.
func (m Manager) run(ctx context.Context, args []string, configure func(*logsapi.LoggingConfiguration) error) error {
	o, err := m.parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if o.version {
		fmt.Println(flags.VersionLine(m.Name))
		return nil
	}
	if o.describe {
		return m.describe(os.Stdout)
	}
	if err := requireFeatures(); err != nil {
		return err
	}
	if err := configure(o.logging); err != nil {
		return err
	}
	for _, line := range o.renamed {
		klog.Background().Info("A flag has been renamed", "warning", line)
	}
	config, err := clientConfig(o)
	if err != nil {
		return err
	}
	p, err := m.assemble(o, config)
	if err != nil {
		return err
	}
	klog.Background().Info("Starting", "version", flags.VersionLine(m.Name), "server", config.Host, "namespace", o.namespace, "controllers", o.controllers)
	if err := p.run(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	klog.Background().Info("Stopped")
	return nil
}

// requireFeatures returns an error if the environment disables a feature of client-go that
// the controllers are not safe without. With AtomicFIFO, a cache knows its resource
// version; without it, every cache would always seem to be up to date. The other features
// can be disabled: they change costs but not correctness. Without WatchListClient, for
// example, a cache may be filled with an old state, which the barrier notices.
func requireFeatures() error {
	if !clientfeatures.FeatureGates().Enabled(clientfeatures.AtomicFIFO) {
		return fmt.Errorf("KUBE_FEATURE_%[1]s is false in the environment, but the controllers are not safe without client-go's feature %[1]s; remove it", clientfeatures.AtomicFIFO)
	}
	return nil
}

// running is a controller that is ready to be started.
type running struct {
	Controller
	name   string
	caches *informer.Caches
}

// process is the parts of a running program.
type process struct {
	workers     int
	client      rest.Interface     // for preflight
	metadata    metadata.Interface // for the barrier
	controllers []running
	recorder    *events.Recorder
	election    *leader.Election // nil if there is none
	server      *serve.Server
}

// assemble wires the parts (step 2). It starts nothing, but opens the addresses to serve on.
func (m Manager) assemble(o options, config *rest.Config) (*process, error) {
	p := &process{workers: o.workers}
	var err error
	kube, err := typed.NewForConfig(Protobuf(config))
	if err != nil {
		return nil, err
	}
	p.client = kube.RESTClient(corev1.SchemeGroupVersion)
	if p.metadata, err = metadata.NewForConfig(rest.AddUserAgent(rest.CopyConfig(config), "barrier")); err != nil {
		return nil, err
	}
	reviewer, err := newReviewer(rest.AddUserAgent(leader.Separate(Protobuf(config)), "reviews"))
	if err != nil {
		return nil, err
	}
	if o.election.LeaderElect {
		o.election.ResourceNamespace = cmp.Or(o.election.ResourceNamespace, podNamespace(o), o.namespace, metav1.NamespaceSystem)
		lease, err := leader.NewClient(Protobuf(config))
		if err != nil {
			return nil, err
		}
		if p.election, err = leader.New(o.election, lease, clock.RealClock{}); err != nil {
			return nil, fmt.Errorf("-leader-elect: %w", err)
		}
		if o.formerLease != "" {
			p.election.Follow(o.formerLease, lease)
		}
		config = rest.CopyConfig(config)
		p.election.Fence(config)
	}

	if p.recorder, err = m.newRecorder(rest.AddUserAgent(Protobuf(config), "events")); err != nil {
		return nil, err
	}

	enabled, err := m.enabled(o.controllers)
	if err != nil {
		return nil, err
	}
	for _, d := range enabled {
		caches := informer.New(metrics.For(d.Name).CacheHeard, clock.RealClock{})
		controller, err := d.New(Dependencies{
			Config:    configFor(d.Name, config),
			Namespace: o.namespace,
			Resync:    o.resync,
			Caches:    caches,
			Recorder:  p.recorder.For(d.Name + "-controller"),
			Clock:     clock.RealClock{},
		})
		if err != nil {
			return nil, fmt.Errorf("starting %s: %w", d.Name, err)
		}
		p.controllers = append(p.controllers, running{controller, d.Name, caches})
	}
	v := flags.Version()
	metrics.Build(v.GitVersion, v.GitCommit)
	live, ready := p.checks(o.stuckAfter)
	p.server, err = serve.Listen(o.serve, reviewer, live, ready, zpages(m.Name, o.flags, clock.RealClock{})...)
	return p, err
}

// checks returns the checks of /livez and /readyz.
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

// run fills the caches, waits until this process leads, and runs the controllers until
// ctx ends (steps 3 to 6). Whatever is still running when it returns ends with the process.
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
		if err := preflight.Await(ctx, p.client, clock.RealClock{}, c.caches.Resources()...); err != nil {
			return err
		}
	}
	for _, c := range p.controllers {
		c.caches.StartWithContext(ctx)
		if !cache.WaitFor(ctx, "", c.Ready()...) {
			return context.Cause(ctx)
		}
	}
	if p.election == nil {
		return p.work(ctx)
	}
	return p.election.Run(ctx, p.work)
}

// work is one term (step 7): it runs the controllers, each as soon as its caches show what
// the API server had stored when the term began, until ctx ends or one of them fails,
// which stops the others. When it returns, nothing is written any more.
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
			err := barrier.Await(ctx, p.metadata, clock.RealClock{}, p.behind(c)...)
			if err == nil {
				err = c.Run(ctx, p.workers)
			}
			if err != nil {
				cancel(fmt.Errorf("running %s: %w", c.name, err))
			}
		})
	}
	running.Wait()
	endRecording() // after the last controller has recorded its last event
	recorder.Wait()
	return context.Cause(ctx)
}

// behind returns the caches of a controller that may lack what the API server had stored when
// the term began. Without an election, that is when the process began.
func (p *process) behind(c running) []barrier.Cache {
	if p.election == nil {
		return c.caches.MaybeStale()
	}
	return c.caches.All()
}

// newReviewer returns clients that send reviews.
func newReviewer(config *rest.Config) (serve.Reviewer, error) {
	kube, err := typed.NewForConfig(config)
	if err != nil {
		return serve.Reviewer{}, err
	}
	return serve.Reviewer{
		Tokens: typed.ClientsWithoutList[authenticationv1.TokenReview](kube, authenticationv1.SchemeGroupVersion.WithResource("tokenreviews"))(metav1.NamespaceNone),
		Access: typed.ClientsWithoutList[authorizationv1.SubjectAccessReview](kube, authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews"))(metav1.NamespaceNone),
	}, nil
}

// newRecorder returns a recorder of events about all kinds that the controllers have.
func (m Manager) newRecorder(config *rest.Config) (*events.Recorder, error) {
	kube, err := typed.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := m.addToScheme(scheme); err != nil {
		return nil, err
	}
	clients := typed.Clients[eventsv1.Event, eventsv1.EventList](kube, eventsv1.SchemeGroupVersion.WithResource("events"))
	return events.New(clients, scheme, clock.RealClock{}, worker.WithObserver(metrics.For("events").Sync)), nil
}

// addToScheme adds the kinds of all objects that the controllers record events about.
func (m Manager) addToScheme(scheme *runtime.Scheme) error {
	errs := []error{typed.AddToScheme(scheme)}
	for _, d := range m.Controllers {
		if d.AddToScheme != nil {
			errs = append(errs, d.AddToScheme(scheme))
		}
	}
	return errors.Join(errs...)
}
