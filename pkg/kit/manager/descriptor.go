package manager

import (
	"context"
	"flag"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"nicoleh.io/k8s-controller/pkg/kit/preflight"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// Descriptor describes a controller to its process.
type Descriptor struct {
	// Name is the controller's name in logs and metrics: a DNS label, and unique in the program.
	Name string
	// ClusterWide controllers cannot be restricted to a namespace.
	ClusterWide bool
	// AddToScheme adds the kinds of custom resources that the controller records events
	// about. It may be nil.
	AddToScheme func(*runtime.Scheme) error
	// AddFlags adds the controller's flags. It may be nil.
	AddFlags func(*flag.FlagSet)
	// Validate checks the flags. Its error is one line that names the wrong flag. It may be nil.
	Validate func() error
	// Confidential keeps what the controller reads and writes out of the log: its clients drop the API server's
	// warnings, because policies and webhooks can quote objects in them.
	Confidential bool
	// New makes the controller and starts nothing. It is called after Validate.
	New func(*Dependencies) (Controller, error)
}

// Dependencies are what a controller gets from its process. While this process does not
// lead, all writes of the clients fail.
type Dependencies struct {
	// Kube reads and writes built-in types.
	Kube kubernetes.Interface
	// Metadata reads and writes only metadata.
	Metadata metadata.Interface
	// Config is for clients of custom resources: see package lenient.
	Config *rest.Config
	// Namespace is the only namespace to work in; all namespaces if empty.
	Namespace string
	// Resync is how often to sync every object even if nothing has changed; 0 is never.
	Resync time.Duration
	// Recorder records events in the controller's name. The controller's role has to permit it to
	// create and patch events.
	Recorder record.EventRecorder

	caches []watched
	needs  []preflight.Resource
}

// watched is a resource and its informer.
type watched struct {
	preflight.Resource
	cache.SharedIndexInformer
}

// Watch registers an informer of a generated factory, and returns it. Take every informer through Watch, and every
// lister from what it returns, and do not start factories: the process starts the informer when it leads, and the
// controller syncs nothing before all of its caches are filled. If one is not filled within five minutes, the process
// ends with an error that names it. Before that, the process waits until it can list the resource. A metric shows the
// version of each cache. The informers of a controller start in the order of these calls.
func Watch[I interface {
	Informer() cache.SharedIndexInformer
}](d *Dependencies, of preflight.Resource, informer I) I {
	d.caches = append(d.caches, watched{of, informer.Informer()})
	return informer
}

// Need has the process wait until it can list a resource that the controller reads without a cache.
func (d *Dependencies) Need(resource preflight.Resource) { d.needs = append(d.needs, resource) }

// StartCaches starts the informers of a controller that was made with d, and has it wait until they are
// filled. The process calls it when it leads. The result returns once the informers have ended, after ctx.
func (d *Dependencies) StartCaches(ctx context.Context, c Controller) (wait func()) {
	var informers sync.WaitGroup
	for _, w := range d.caches {
		c.WaitFor(w.HasSyncedChecker())
		informers.Go(func() { w.RunWithContext(ctx) })
	}
	return informers.Wait
}

// Controller is a controller that a process can run. A [worker.Loop] has these methods, so
// a controller gets them by embedding one.
type Controller interface {
	// Run runs workers until ctx ends, and returns when the last worker has returned.
	Run(ctx context.Context, workers int) error
	// Busy returns how long the longest of the running syncs has been running.
	Busy() time.Duration
	// WaitFor makes Run wait until all of these are done. It is called before Run.
	WaitFor(ready ...cache.DoneChecker)
}

var _ Controller = (*worker.Loop)(nil)
