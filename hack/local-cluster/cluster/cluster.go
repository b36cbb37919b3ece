// Package cluster starts a real Kubernetes control plane on this machine: etcd,
// API server, controllers and scheduler of one Kubernetes version, with nodes
// whose kubelets are simulated by kwok. It needs the go command and nothing
// else; everything listens on free ports of 127.0.0.1, is authenticated by
// certificates of the cluster's own authorities, lives in one directory, and
// ends with the process that started it.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"nicoleh.io/k8s-controller/hack/local-cluster/internal/parts"
	"nicoleh.io/k8s-controller/hack/local-cluster/internal/process"
)

// stopGrace is how long a component may take to end in good order.
const stopGrace = 5 * time.Second

// Cluster is a running control plane.
type Cluster struct {
	options Options
	parts   parts.Parts
	dir     *workspace
	ports   ports
	keeper  *process.Keeper
	config  *rest.Config
	client  kubernetes.Interface

	// life ends when a component dies or the cluster is stopped.
	life context.Context
	end  context.CancelCauseFunc

	mu sync.Mutex
	// running holds what is meant to run. A process that ends while it is in
	// here has failed.
	running map[Component]*process.Process

	stopOnce sync.Once
	stopErr  error
}

// errStopped is the cause of the end of a cluster that nothing was wrong with.
var errStopped = errors.New("the cluster is stopped")

// Dir returns the directory of everything the cluster writes.
func (c *Cluster) Dir() string { return c.dir.path }

// Kubeconfig returns the path of a kubeconfig of a cluster administrator.
func (c *Cluster) Kubeconfig() string { return kubeconfigFile(c.dir.path) }

// Kubectl returns the path of a kubectl of the cluster's version.
func (c *Cluster) Kubectl() string { return c.dir.file("bin", "kubectl") }

// AuditLog returns the path of the audit log; see [ReadAudit].
func (c *Cluster) AuditLog() string { return c.dir.file("audit.log") }

// Log returns the path of a component's log.
func (c *Cluster) Log(component Component) string {
	return c.dir.file("logs", string(component)+".log")
}

// Version returns the version of Kubernetes, e.g. v1.36.3.
func (c *Cluster) Version() string { return c.parts.Version }

// RESTConfig returns the configuration of a client with all rights and no
// limit on its rate. The caller may change it.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// Done is closed when a component has died, or the cluster is stopped.
func (c *Cluster) Done() <-chan struct{} { return c.life.Done() }

// Err says which component died, and why. It is nil while all is well and
// after a stop.
func (c *Cluster) Err() error {
	if cause := context.Cause(c.life); !errors.Is(cause, errStopped) {
		return cause
	}
	return nil
}

// Stop ends every component, and returns when all are gone. It removes the
// directory if Start made it, unless a component had died: then the logs are
// worth reading, and the next start removes it. Later calls return the same.
func (c *Cluster) Stop() error {
	c.stopOnce.Do(func() {
		c.end(errStopped)
		c.stopErr = c.stop(c.Err() != nil)
	})
	return c.stopErr
}

// stop ends the clients of the API before it, and it before its storage.
func (c *Cluster) stop(keepDir bool) error {
	err := errors.Join(
		c.stopAll(Kwok, Scheduler, ControllerManager),
		c.stopAll(APIServer),
		c.stopAll(Etcd),
	)
	c.keeper.Close()
	return errors.Join(err, c.dir.Close(keepDir))
}

// stopAll stops components at the same time.
func (c *Cluster) stopAll(components ...Component) error {
	failures := make([]error, len(components))
	var stopping sync.WaitGroup
	for i, component := range components {
		if p := c.release(component); p != nil {
			stopping.Go(func() { failures[i] = p.Stop(stopGrace) })
		}
	}
	stopping.Wait()
	return errors.Join(failures...)
}

// StopComponent asks a component to end and returns when it is gone.
func (c *Cluster) StopComponent(component Component) error {
	p := c.release(component)
	if p == nil {
		return fmt.Errorf("stopping %s: it is not running", component)
	}
	return p.Stop(stopGrace)
}

// KillComponent ends a component as a crash would, and returns when it is gone.
func (c *Cluster) KillComponent(component Component) error {
	p := c.release(component)
	if p == nil {
		return fmt.Errorf("killing %s: it is not running", component)
	}
	return p.Kill()
}

// release takes a component out of what is meant to run. It returns nil if it
// was not in there.
func (c *Cluster) release(component Component) *process.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.running[component]
	delete(c.running, component)
	return p
}

// adopt makes the end of a process, as long as it is meant to run, the end of
// the cluster.
func (c *Cluster) adopt(component Component, p *process.Process) {
	c.mu.Lock()
	c.running[component] = p
	c.mu.Unlock()
	go func() {
		<-p.Exited()
		c.mu.Lock()
		isMeantToRun := c.running[component] == p
		c.mu.Unlock()
		if isMeantToRun {
			c.end(p.Failure())
		}
	}()
}
