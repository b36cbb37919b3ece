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

// Descriptor is what a process needs to know about a controller before it runs it.
type Descriptor struct {
	// Name is the controller's name in logs and in metrics: a DNS label. No two controllers of a program have
	// the same.
	Name string
	// ClusterWide controllers cannot be restricted to a namespace.
	ClusterWide bool
	// AddToScheme adds the kinds of custom resources that the controller records events
	// about. It may be nil.
	AddToScheme func(*runtime.Scheme) error
	// AddFlags adds the controller's flags. It may be nil.
	AddFlags func(*flag.FlagSet)
	// Validate returns an error of one line that names the flag that is wrong, if any. It
	// may be nil.
	Validate func() error
	// Confidential says that what the controller reads and writes must not be logged. So its
	// clients drop the API server's warnings, with which policies and webhooks can quote it.
	Confidential bool
	// New makes the controller and starts nothing. It is called after Validate.
	New func(*Dependencies) (Controller, error)
}

// Dependencies are what a controller gets from its process. While this process does not
// lead, all writes of the clients fail.
type Dependencies struct {
	// Kube reads and writes built-in types.
	Kube kubernetes.Interface
	// Metadata reads and writes metadata alone.
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

	caches []held
	needs  []preflight.Resource
}

// held is what one informer holds.
type held struct {
	preflight.Resource
	cache.SharedIndexInformer
}

// Watch returns informer, of a generated factory, for a controller that reads this resource. Take every
// informer through Watch, and every lister from what it returns, and do not start factories: the
// process starts the informer when it leads, and the controller syncs nothing before all of its caches
// are filled. If one is not filled within five minutes, the process ends with an error that names it.
// Before that, the process waits until it can list the resource. A metric shows the version of each
// cache. The informers of a controller start in the order of these calls.
func Watch[I interface {
	Informer() cache.SharedIndexInformer
}](d *Dependencies, of preflight.Resource, informer I) I {
	d.caches = append(d.caches, held{of, informer.Informer()})
	return informer
}

// Need has the process wait until it can list a resource that the controller reads without a cache.
func (d *Dependencies) Need(resource preflight.Resource) { d.needs = append(d.needs, resource) }

// StartCaches starts the informers of a controller that was made with d, and has it wait until they are
// filled. The process calls it when it leads. The result returns once the informers have ended, after ctx.
func (d *Dependencies) StartCaches(ctx context.Context, c Controller) (wait func()) {
	var informers sync.WaitGroup
	for _, held := range d.caches {
		c.WaitFor(held.HasSyncedChecker())
		informers.Go(func() { held.RunWithContext(ctx) })
	}
	return informers.Wait
}

// Controller is a controller that a process can run. A [worker.Loop] has these methods, so
// a controller gets them by embedding one.
type Controller interface {
	// Run runs workers until ctx ends, and returns when the last worker has returned.
	Run(ctx context.Context, workers int) error
	// Busy returns for how long the longest of the running syncs has been running.
	Busy() time.Duration
	// WaitFor makes Run wait until all of these are done. It is called before Run.
	WaitFor(ready ...cache.DoneChecker)
}

var _ Controller = (*worker.Loop)(nil)
