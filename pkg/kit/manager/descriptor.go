package manager

import (
	"context"
	"flag"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/events"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
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
	// AddToScheme adds the kinds of the objects that the controller records events about.
	// The scheme already has those of typed.AddToScheme. It may be nil.
	AddToScheme func(*runtime.Scheme) error
	// AddFlags adds the controller's flags. It may be nil. No flag may hold a secret,
	// because /flagz shows all values to clients that are authorized to get it: let
	// the flag name a file.
	AddFlags func(*flag.FlagSet)
	// Validate returns an error of one line that names the flag that is wrong, if any. It
	// may be nil.
	Validate func() error
	// New makes the controller, and starts nothing. It is called after Validate.
	New func(Dependencies) (Controller, error)
}

// Dependencies are what a controller gets from its process.
type Dependencies struct {
	// Config is the config for clients. Their writes fail unless this process leads.
	Config *rest.Config
	// Namespace is the only namespace to work in; all namespaces if empty.
	Namespace string
	// Resync is how often to sync every object even if nothing has changed; 0 is never.
	Resync time.Duration
	// Caches are the controller's caches. New adds an informer for everything that the
	// controller reads.
	Caches *informer.Caches
	// Recorder records events in the controller's name.
	Recorder events.EventRecorder
	// Clock is the clock of the process.
	Clock clock.WithTickerAndDelayedExecution
}

// Controller is a controller that a process can run. A [worker.Loop] has all of these
// methods, so a controller gets them by embedding one.
type Controller interface {
	// Run runs workers until ctx ends, and returns when the last worker has returned.
	Run(ctx context.Context, workers int) error
	// Ready returns checkers that are done when the caches are filled.
	Ready() []cache.DoneChecker
	// Busy returns for how long the longest of the running syncs has been running.
	Busy() time.Duration
}

var _ Controller = (*worker.Loop)(nil)
