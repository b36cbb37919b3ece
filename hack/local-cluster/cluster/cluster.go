// Package cluster runs a real Kubernetes control plane on this machine. envtest starts etcd
// and kube-apiserver, and makes their certificates and users; kube-controller-manager,
// kube-scheduler and kwok, which simulates the kubelets, run beside them. Everything listens
// on free ports of 127.0.0.1, keeps its files in one directory, and ends with the process
// that started it.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"nicoleh.io/k8s-controller/hack/local-cluster/internal/parts"
)

// startTimeout bounds the start of a cluster, but not the build before it.
const startTimeout = 5 * time.Minute

// DefaultNodes is the number of nodes of a cluster that asks for none.
const DefaultNodes = 3

// Options configure a cluster.
type Options struct {
	// Dir is the directory of the cluster's files. It must be empty, absent, or left from an
	// earlier cluster, whose files are removed. If Dir is "", the cluster makes a directory,
	// and Stop removes it unless a component has failed.
	Dir string
	// Nodes is the number of nodes, which are named node-1, node-2, and so on. Zero means
	// DefaultNodes, a negative number none.
	Nodes int
	// OnlyAPI starts etcd and the API server, and nothing else. There are no nodes.
	OnlyAPI bool
	// Audit records all requests; see [AuditReader].
	Audit bool
	// Log receives the progress of the build and of the start. Nil discards it.
	Log io.Writer
}

// Cluster is a running control plane.
type Cluster struct {
	options Options
	dir     string
	plane   envtest.ControlPlane
	config  *rest.Config
	client  kubernetes.Interface

	// life ends when a component dies or the cluster is stopped.
	life context.Context
	end  context.CancelCauseFunc

	mu      sync.Mutex
	running map[Component]int // process IDs; a process in here must not end

	stop func() error
}

// errStopped is the cause of the end of a cluster that was stopped.
var errStopped = errors.New("the cluster is stopped")

// Build compiles the programs of a cluster unless they are in the cache. Start does so too.
func Build(ctx context.Context, log io.Writer) error {
	_, err := parts.Ensure(ctx, log)
	return err
}

// Start starts a cluster. It returns when the API server is ready, namespaces get their
// service accounts, and every node is Ready. The end of ctx interrupts the start, but does
// not end a cluster that has started: the caller must call Stop.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	if options.Log == nil {
		options.Log = io.Discard
	}
	if options.Nodes == 0 {
		options.Nodes = DefaultNodes
	}
	programs, err := parts.Ensure(ctx, options.Log)
	if err != nil {
		return nil, err
	}
	dir, err := makeDir(options.Dir)
	if err != nil {
		return nil, fmt.Errorf("making the cluster's directory: %w", err)
	}
	c := &Cluster{options: options, dir: dir, running: map[Component]int{}}
	c.life, c.end = context.WithCancelCause(context.Background())
	c.stop = sync.OnceValue(func() error {
		c.end(errStopped)
		c.killAll()
		if options.Dir == "" && c.Err() == nil {
			return os.RemoveAll(dir)
		}
		return os.Remove(c.file(pidFile))
	})
	if err := c.boot(ctx, programs); err != nil {
		if ctx.Err() == nil {
			c.end(err) // keeps the logs
		}
		return nil, errors.Join(fmt.Errorf("starting the cluster: %w", err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) boot(ctx context.Context, programs parts.Programs) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()

	if err := c.install(programs); err != nil {
		return err
	}
	if err := c.start(Etcd); err != nil {
		return err
	}
	if err := c.start(APIServer); err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return err
	}
	if err := c.awaitReady(ctx); err != nil {
		return err
	}
	fmt.Fprintf(c.options.Log, "the API serves after %v\n", time.Since(began).Round(10*time.Millisecond))
	if c.options.OnlyAPI {
		return nil
	}
	for _, component := range []Component{ControllerManager, Scheduler, Kwok} {
		if err := c.start(component); err != nil {
			return err
		}
	}
	if err := c.createNodes(ctx); err != nil {
		return err
	}
	if err := c.await(ctx, "the nodes to be ready", c.nodesReady); err != nil {
		return err
	}
	err := c.await(ctx, "the default service account", func(ctx context.Context) (bool, error) {
		_, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(c.options.Log, "%d nodes are ready after %v\n", max(c.options.Nodes, 0), time.Since(began).Round(10*time.Millisecond))
	return nil
}

// connect adds the users, writes their kubeconfigs, and creates the cluster's own client.
func (c *Cluster) connect() error {
	for path, user := range map[string]envtest.User{
		c.Kubeconfig():                  {Name: "local-cluster-admin", Groups: []string{"system:masters"}},
		c.configFile(ControllerManager): {Name: "system:kube-controller-manager"},
		c.configFile(Scheduler):         {Name: "system:kube-scheduler"},
		c.configFile(Kwok):              {Name: "system:kwok", Groups: []string{"system:masters"}},
	} {
		added, err := c.plane.AddUser(user, nil)
		if err != nil {
			return err
		}
		kubeconfig, err := added.KubeConfig()
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
			return err
		}
	}
	if err := os.WriteFile(c.file("config", "ca.crt"), c.plane.APIServer.CA, 0o600); err != nil {
		return err
	}
	var err error
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig()); err != nil {
		return err
	}
	c.config.QPS = -1 // no limit
	c.client, err = kubernetes.NewForConfig(c.config)
	return err
}

// awaitReady waits until the API server calls itself ready, which is later than envtest waits
// for: its hooks have created the roles.
func (c *Cluster) awaitReady(ctx context.Context) error {
	return c.await(ctx, "the API server to be ready", func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		err := c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		return err == nil, err
	})
}

// await calls isTrue until it returns true. If it never does, the error says why.
func (c *Cluster) await(ctx context.Context, what string, isTrue func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 25*time.Millisecond, true, func(ctx context.Context) (ok bool, _ error) {
		ok, last = isTrue(ctx)
		return ok, nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("waiting for %s: %w", what, err), last, c.Err())
	}
	return nil
}

// Stop ends all components, and returns when they are gone. Later calls return the same.
func (c *Cluster) Stop() error { return c.stop() }

// Done is closed when a component has died or the cluster is stopped.
func (c *Cluster) Done() <-chan struct{} { return c.life.Done() }

// Err returns an error with the end of its log if a component has died.
func (c *Cluster) Err() error {
	if cause := context.Cause(c.life); !errors.Is(cause, errStopped) {
		return cause
	}
	return nil
}

// Dir returns the directory of the cluster's files.
func (c *Cluster) Dir() string { return c.dir }

// Kubeconfig returns the path of a cluster administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.file("kubeconfig") }

// Kubectl returns the path of a kubectl of the cluster's version.
func (c *Cluster) Kubectl() string { return c.file("bin", "kubectl") }

// RESTConfig returns the configuration of an administrator's client, without a rate limit.
// The caller may change it.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

func (c *Cluster) file(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

func (c *Cluster) configFile(component Component) string {
	return c.file("config", string(component)+".kubeconfig")
}
