package manager

import (
	"context"
	"flag"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
)

// Descriptor is what a process needs to know about a controller before it runs it.
type Descriptor struct {
	// Name is that of the controller in -controllers, in logs and in metrics.
	Name string
	// OnByDefault controllers run unless -controllers says otherwise.
	OnByDefault bool
	// ClusterWide controllers cannot be restricted to a namespace.
	ClusterWide bool
	// AddToScheme adds the kinds that events are about. Those of Kubernetes are there
	// already. It may be nil.
	AddToScheme func(*runtime.Scheme) error
	// AddFlags adds the controller's flags. It may be nil. No flag may hold a secret,
	// because /flagz shows all values to clients that are authorized to get it: let
	// the flag name a file.
	AddFlags func(*flag.FlagSet)
	// Validate returns an error of one line if the flags are wrong, by their names. It
	// may be nil.
	Validate func() error
	// New makes the controller, and starts nothing.
	New func(Dependencies) (Controller, error)
}

// Dependencies are what a controller gets from its process.
type Dependencies struct {
	// Config is for clients. Their writes do not leave the process unless it leads.
	Config *rest.Config
	// Namespace is the only one to work in; empty is all of them.
	Namespace string
	// Resync is how often to look at everything even if nothing has changed.
	Resync time.Duration
	// Caches are those of the controller: New adds all that it reads.
	Caches *informer.Caches
	// Recorder records events.
	Recorder events.EventRecorder
	Clock    clock.WithTickerAndDelayedExecution
}

// Controller is what a process runs.
type Controller interface {
	// Run works until ctx ends, and returns when the last worker has finished.
	Run(ctx context.Context, workers int) error
	// Ready are done when the caches are filled.
	Ready() []cache.DoneChecker
	// Busy is how long the longest of the running syncs has been running.
	Busy() time.Duration
}
