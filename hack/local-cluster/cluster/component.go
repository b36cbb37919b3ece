package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"nicoleh.io/k8s-controller/hack/local-cluster/internal/process"
)

const (
	poll      = 25 * time.Millisecond
	portTurns = 5 // attempts of a component at ports that turn out to be taken
)

// StartComponent starts a component that was stopped, killed or left out, with
// the addresses, keys and data it had. It returns when the API is served; the
// other components have started, and act soon after.
func (c *Cluster) StartComponent(ctx context.Context, component Component) error {
	c.mu.Lock()
	isRunning := c.running[component] != nil
	c.mu.Unlock()
	if isRunning {
		return fmt.Errorf("starting %s: it is running", component)
	}
	// Its clients know its ports, so it waits for them.
	return c.start(ctx, component, func() error { return sleep(ctx, time.Second) })
}

// PauseComponent makes a component stand still: its connections stay open and
// nothing answers.
func (c *Cluster) PauseComponent(component Component) error {
	return c.signal(component, syscall.SIGSTOP)
}

// ResumeComponent ends a pause.
func (c *Cluster) ResumeComponent(component Component) error {
	return c.signal(component, syscall.SIGCONT)
}

func (c *Cluster) signal(component Component, signal os.Signal) error {
	c.mu.Lock()
	p := c.running[component]
	c.mu.Unlock()
	if p == nil {
		return fmt.Errorf("sending %v to %s: it is not running", signal, component)
	}
	return p.Signal(signal)
}

// start starts a component and waits until it serves, if it is a server. When
// a port of it is taken it calls move, and tries again.
func (c *Cluster) start(ctx context.Context, component Component, move func() error) error {
	for turn := 1; ; turn++ {
		err := c.startOnce(ctx, component)
		var failure *process.Failure
		if !errors.As(err, &failure) || !failure.PortTaken() || turn == portTurns {
			return err
		}
		if err := move(); err != nil {
			return err
		}
	}
}

func (c *Cluster) startOnce(ctx context.Context, component Component) error {
	p, err := c.keeper.Start(process.Command{
		Name:    string(component),
		Path:    c.executable(component),
		Args:    c.args(component),
		Env:     c.environment(),
		Dir:     c.dir.path,
		Log:     c.Log(component),
		Records: c.dir.file("pids"),
	})
	if err != nil {
		return err
	}
	if err := c.awaitServing(ctx, component, p); err != nil {
		return errors.Join(err, p.Kill())
	}
	c.adopt(component, p)
	return nil
}

func (c *Cluster) awaitServing(ctx context.Context, component Component, p *process.Process) error {
	var isServing func(context.Context) (bool, error)
	switch component {
	case Etcd:
		isServing = c.etcdServes
	case APIServer:
		isServing = c.apiServes
	default:
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.Exited():
			cancel()
		case <-ctx.Done():
		}
	}()
	err := await(ctx, fmt.Sprintf("%s to serve (its log is %s)", component, c.Log(component)), isServing)
	select {
	case <-p.Exited():
		return p.Failure()
	default:
		return err
	}
}

// environment is all that a component sees of the caller's: its result must
// not depend on who starts it, and its home is the cluster's directory. More
// memory saves them a tenth of their processor time.
func (c *Cluster) environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "HOME=" + c.dir.path, "GOGC=400"}
}

// await asks until the answer is yes. What went wrong on the way is of
// interest only if it never is.
func await(ctx context.Context, what string, isTrue func(context.Context) (bool, error)) error {
	for {
		ok, err := isTrue(ctx)
		if ok {
			return nil
		}
		if sleep(ctx, poll) == nil {
			continue
		}
		if err != nil && !errors.Is(err, ctx.Err()) {
			return fmt.Errorf("waiting for %s: %w (%w)", what, context.Cause(ctx), err)
		}
		return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
