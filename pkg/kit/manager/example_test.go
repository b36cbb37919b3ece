package manager_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeinformers "k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// NewDescriptor describes a controller that greets every Pod.
func NewDescriptor(greeted func()) manager.Descriptor {
	var greeting string
	return manager.Descriptor{
		Name: "greeter",
		AddFlags: func(flags *flag.FlagSet) {
			flags.StringVar(&greeting, "greeter-greeting", "Hello", "What to say to a Pod.")
		},
		New: func(d *manager.Dependencies) (manager.Controller, error) {
			factory := kubeinformers.NewSharedInformerFactoryWithOptions(d.Kube, d.Resync, kubeinformers.WithNamespace(d.Namespace))
			pods := preflight.Resource{
				GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"),
				Namespace:            d.Namespace,
				Permit:               "allow this process to list and watch Pods",
			}
			return NewController(greeting, greeted, manager.Watch(d, pods, factory.Core().V1().Pods()))
		},
	}
}

// Controller greets every Pod. The Loop has the methods that a manager.Controller needs.
type Controller struct {
	*worker.Loop
	greeting string
	greeted  func()
	pods     corelisters.PodLister
}

// NewController wires the controller and starts nothing.
func NewController(greeting string, greeted func(), pods coreinformers.PodInformer) (*Controller, error) {
	c := &Controller{greeting: greeting, greeted: greeted, pods: pods.Lister()}
	c.Loop = worker.New("greeter", c.sync)
	add := func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			c.Add(name)
		}
	}
	handler, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
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
	if pod, err := c.pods.Pods(name.Namespace).Get(name.Name); err == nil {
		fmt.Printf("%s, %s!\n", c.greeting, pod.Name)
		c.greeted()
	}
	return 0, nil
}

// A complete program: a table of controllers. Its main function has one line:
//
//	func main() { program.Main() }
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	program := manager.Manager{
		Name:        "shop",
		LeaseName:   "shop",
		Controllers: []manager.Descriptor{NewDescriptor(stop)},
	}

	// Run it against an API server with one Pod until that Pod is greeted.
	server := httptest.NewServer(http.HandlerFunc(onePod))
	defer server.Close()
	kubeconfig := writeKubeconfig(server.URL)
	defer os.Remove(kubeconfig) //nolint:errcheck // a temporary file
	err := program.Run(ctx, []string{"-kubeconfig=" + kubeconfig, "-leader-elect=false", "-bind-address=", "-greeter-greeting=Welcome"})
	fmt.Println(err)
	// Output:
	// Welcome, vanilla!
	// <nil>
}

// writeKubeconfig writes a kubeconfig for the API server at that address, and returns its name.
func writeKubeconfig(address string) string {
	file, err := os.CreateTemp("", "kubeconfig")
	if err != nil {
		panic(err)
	}
	defer file.Close()
	fmt.Fprintf(file, `{"clusters": [{"name": "one", "cluster": {"server": %q}}],
		"contexts": [{"name": "one", "context": {"cluster": "one"}}], "current-context": "one"}`, address)
	return file.Name()
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
