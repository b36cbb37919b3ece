package manager_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// NewDescriptor describes a controller that greets every Pod.
func NewDescriptor() manager.Descriptor {
	var greeting string
	return manager.Descriptor{
		Name:        "greeter",
		OnByDefault: true,
		AddFlags: func(flags *flag.FlagSet) {
			flags.StringVar(&greeting, "greeter-greeting", "Hello", "What to say to a Pod.")
		},
		New: func(d manager.Dependencies) (manager.Controller, error) { return NewController(d, greeting) },
	}
}

// Controller greets every Pod. The Loop has the methods that a manager.Controller needs.
type Controller struct {
	*worker.Loop
	greeting string
	pods     informer.Cache[*corev1.Pod]
}

// NewController wires the controller and starts nothing.
func NewController(d manager.Dependencies, greeting string) (*Controller, error) {
	client, err := kubernetes.NewForConfig(manager.Protobuf(d.Config))
	if err != nil {
		return nil, err
	}
	c := &Controller{greeting: greeting}
	c.pods = informer.NewCache[*corev1.Pod](d.Caches, preflight.Resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"),
		Namespace:            d.Namespace,
		Permit:               "allow this process to list and watch Pods",
	}, client.CoreV1().Pods(d.Namespace), &corev1.Pod{}, d.Resync)
	c.Loop = worker.New("greeter", c.sync, worker.WithClock(d.Clock), worker.WithKeys(informer.Keys(c.pods.GetStore())), worker.WithObserver(metrics.For("greeter").Sync))
	add := informer.Named(c.Add)
	handler, err := c.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, obj any) { add(obj) },
		DeleteFunc: add,
	})
	if err != nil {
		return nil, err
	}
	c.WaitFor(handler.HasSyncedChecker())
	return c, nil
}

// sync greets one Pod.
func (c *Controller) sync(_ context.Context, name cache.ObjectName) (requeueAfter time.Duration, err error) {
	if pod := c.pods.Get(name.Namespace, name.Name); pod != nil {
		fmt.Printf("%s, %s!\n", c.greeting, pod.Name)
	}
	return 0, nil
}

// A complete program: a table of controllers. Its main function has one line:
//
//	func main() { program.Main() }
func Example() {
	program := manager.Manager{
		Name:        "shop",
		LeaseName:   "shop",
		Controllers: []manager.Descriptor{NewDescriptor()},
	}

	// Run it against an API server with one Pod until that Pod was greeted.
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	program.Controllers[0] = stopAfterSync(program.Controllers[0], stop)
	server := httptest.NewServer(http.HandlerFunc(onePod))
	defer server.Close()
	err := program.Run(ctx, []string{"-master=" + server.URL, "-leader-elect=false", "-bind-address=", "-greeter-greeting=Welcome"})
	fmt.Println(err)
	// Output:
	// Welcome, vanilla!
	// <nil>
}

// stopAfterSync stops the program as soon as a sync has ended.
func stopAfterSync(d manager.Descriptor, stop func()) manager.Descriptor {
	build := d.New
	d.New = func(d manager.Dependencies) (manager.Controller, error) {
		c, err := build(d)
		if c, ok := c.(*Controller); ok {
			worker.WithObserver(func(worker.Outcome) { stop() })(c.Loop)
		}
		return c, err
	}
	return d
}

// onePod responds as an API server with one Pod would, in which nothing ever happens.
func onePod(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch query := r.URL.Query(); {
	case query.Has("sendInitialEvents"): // an older API server, so the client sends a list instead
		w.WriteHeader(http.StatusUnprocessableEntity)
	case query.Has("watch"):
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		version, kind := "v1", "PodList"
		if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
			version, kind = "meta.k8s.io/v1", "PartialObjectMetadataList"
		}
		fmt.Fprintf(w, `{"apiVersion": %q, "kind": %q, "metadata": {"resourceVersion": "7"},
			"items": [{"metadata": {"namespace": "parlor", "name": "vanilla", "resourceVersion": "7"}}]}`, version, kind)
	}
}
