package cluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/hack/local-cluster/internal/parts"
	"nicoleh.io/k8s-controller/hack/local-cluster/internal/pki"
	"nicoleh.io/k8s-controller/hack/local-cluster/internal/process"
)

// bootTimeout bounds a boot, not the build of the parts before it.
const bootTimeout = 5 * time.Minute

//go:embed stages.yaml
var stages []byte

// Build builds the programs that clusters consist of, unless they are in the
// cache. Start does so, too; a build takes minutes, and a test may not want them to
// count against its own time.
func Build(ctx context.Context, options Options) error {
	options, err := options.withDefaults()
	if err != nil {
		return err
	}
	_, err = parts.Ensure(ctx, options.Log)
	return err
}

// IsBuilt reports whether the programs are in the cache, so that Start takes seconds.
func IsBuilt(ctx context.Context) (bool, error) {
	_, isBuilt, err := parts.Find(ctx)
	return isBuilt, err
}

// Start starts a cluster. It returns when the API is served, namespaces get
// their service accounts, and every node is Ready. Once it has returned, the
// end of ctx means nothing to the cluster: the caller must Stop it.
//
// When it fails nothing runs on. The error of a component that died holds the
// end of its log; the directory is kept until the next start.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	programs, err := parts.Ensure(ctx, options.Log)
	if err != nil {
		return nil, err
	}
	dir, err := openWorkspace(options.Dir, os.TempDir())
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		options: options,
		parts:   programs,
		dir:     dir,
		keeper:  process.NewKeeper(),
		running: map[Component]*process.Process{},
	}
	c.life, c.end = context.WithCancelCause(context.Background())
	if err := c.boot(ctx); err != nil {
		isWorthReading := ctx.Err() == nil
		c.end(errStopped)
		return nil, errors.Join(fmt.Errorf("starting the cluster: %w", err), c.stop(isWorthReading))
	}
	return c, nil
}

func (c *Cluster) boot(ctx context.Context) error {
	started := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("not within %v", bootTimeout))
	defer cancel()
	// A component that dies ends the wait for what it would have done.
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	defer context.AfterFunc(c.life, func() { abort(context.Cause(c.life)) })()

	if err := c.install(); err != nil {
		return err
	}
	if err := c.start(ctx, Etcd, c.pickEtcdPorts); err != nil {
		return err
	}
	c.logf("etcd serves after %v", since(started))
	if err := c.start(ctx, APIServer, c.pickAPIPort); err != nil {
		return err
	}
	c.logf("the API of Kubernetes %s serves after %v", c.parts.Version, since(started))
	for _, component := range []Component{ControllerManager, Scheduler, Kwok} {
		if component == ControllerManager && c.options.WithoutControllerManager {
			continue
		}
		if err := c.start(ctx, component, nil); err != nil {
			return err
		}
	}
	if err := c.populate(ctx); err != nil {
		return err
	}
	c.logf("%d nodes are ready after %v", c.options.Nodes, since(started))
	return nil
}

// install writes everything that components read when they start.
func (c *Cluster) install() error {
	if err := pki.Ensure(c.dir.file("pki")); err != nil {
		return err
	}
	for _, component := range Components() {
		if err := link(c.parts.Components, c.executable(component)); err != nil {
			return err
		}
	}
	if err := link(c.parts.Kubectl, c.Kubectl()); err != nil {
		return err
	}
	policy, err := yaml.Marshal(newAuditPolicy(c.options.AuditUsers, c.options.AuditBodies))
	if err != nil {
		return fmt.Errorf("encoding the audit policy: %w", err)
	}
	scheduler, err := c.schedulerConfig()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"stages.yaml": stages, "audit-policy.yaml": policy, "scheduler.yaml": scheduler} {
		if err := os.WriteFile(c.dir.file("config", name), content, 0o600); err != nil {
			return fmt.Errorf("writing a configuration: %w", err)
		}
	}
	if err := c.pickEtcdPorts(); err != nil {
		return err
	}
	return c.pickAPIPort()
}

func (c *Cluster) pickEtcdPorts() error {
	picked, err := freePorts(2)
	if err != nil {
		return err
	}
	c.ports.etcdClient, c.ports.etcdPeer = picked[0], picked[1]
	return nil
}

// pickAPIPort also tells those who will use it.
func (c *Cluster) pickAPIPort() error {
	picked, err := freePorts(1)
	if err != nil {
		return err
	}
	c.ports.api = picked[0]
	return c.writeKubeconfigs()
}

// populate waits until the controllers have filled the cluster's namespaces
// and the nodes it registers are Ready.
func (c *Cluster) populate(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := createNodes(ctx, c.client, c.options.Nodes, c.parts.Version); err != nil {
			return err
		}
		if c.options.WithoutControllerManager {
			if err := admitPods(ctx, c.client, c.options.Nodes); err != nil {
				return err
			}
		}
		return await(ctx, "the nodes to be ready", func(ctx context.Context) (bool, error) {
			return nodesReady(ctx, c.client, c.options.Nodes)
		})
	})
	if !c.options.WithoutControllerManager {
		group.Go(func() error {
			return await(ctx, "the default service account", func(ctx context.Context) (bool, error) {
				return hasServiceAccount(ctx, c.client, metav1.NamespaceDefault)
			})
		})
	}
	return group.Wait()
}

// hasServiceAccount reports whether Pods can be created in a namespace.
func hasServiceAccount(ctx context.Context, client kubernetes.Interface, namespace string) (bool, error) {
	_, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
	return err == nil, err
}

func (c *Cluster) logf(format string, args ...any) {
	fmt.Fprintf(c.options.Log, format+"\n", args...)
}

func since(t time.Time) time.Duration { return time.Since(t).Round(10 * time.Millisecond) }

// link makes path a symbolic link to target, also where it was one before.
func link(target, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replacing a link: %w", err)
	}
	return os.Symlink(target, path)
}
