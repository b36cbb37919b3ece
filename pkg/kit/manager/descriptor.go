package manager

import (
	"context"
	"flag"
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
	// Name is the controller's name in -controllers, in logs, and in metrics.
	Name string
	// OnByDefault controllers run unless -controllers says otherwise.
	OnByDefault bool
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
	New func(Dependencies) (Parts, error)
}

// Dependencies are what a controller gets from its process. While this process does not
// lead, all writes of the clients fail.
type Dependencies struct {
	// Kube reads and writes built-in types.
	Kube kubernetes.Interface
	// Metadata reads and writes metadata alone.
	Metadata metadata.Interface
	// Config is for clients of custom resources.
	Config *rest.Config
	// Namespace is the only namespace to work in; all namespaces if empty.
	Namespace string
	// Resync is how often to sync every object even if nothing has changed; 0 is never.
	Resync time.Duration
	// Recorder records events in the controller's name.
	Recorder record.EventRecorder
}

// Parts are a controller and what it needs before it can run.
type Parts struct {
	Controller
	// Caches are what the controller reads. The process waits until it can list each of these
	// resources. When it leads, it starts their informers, in this order, and the controller syncs
	// nothing before all of them are filled. If one is not filled within five minutes, the process
	// ends with an error that names it. A metric shows the version of each. List every informer
	// here, and do not start a factory of informers: nothing fills one that is missing, and if it has
	// no handler, nothing notices.
	Caches []Cache
	// Needs are what the controller reads without a cache. The process waits until it can list
	// each of these, too.
	Needs []preflight.Resource
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

// Cache is what one informer holds.
type Cache struct {
	preflight.Resource
	Informer cache.SharedIndexInformer
}
