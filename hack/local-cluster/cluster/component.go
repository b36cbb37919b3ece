package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Component names one process of a cluster.
type Component string

// The components, in the order in which they start.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
	Kwok              Component = "kwok" // the kubelets
)

const (
	exitPoll  = 20 * time.Millisecond
	stopGrace = 5 * time.Second
	tailLines = 20
)

// process is a component that has started. envtest does not reveal its processes, so
// all of them are known by their IDs.
type process struct {
	pid    int
	exited chan struct{}
}

// script runs a component. envtest runs it with --help to see which flags exist.
//
// The result must not depend on the caller's environment. With more memory, the components
// use a tenth less processor time.
const script = `#!/bin/sh
dir=${0%%/run/*} name=${0##*/}
if [ "$1" != --help ]; then
  echo $$ >"${dir}/pids/${name}"
  exec >>"${dir}/logs/${name}.log" 2>&1
fi
exec env -i PATH="${PATH}" TMPDIR="${TMPDIR:-/tmp}" HOME="${dir}" GOGC=400 %s "$@"
`

// program returns the path of the script of a component.
func (c *Cluster) program(component Component) string { return c.file("run", string(component)) }

func (c *Cluster) pidFile(component Component) string { return c.file("pids", string(component)) }

// start starts a component. It returns when etcd or the API server serves, and at once for
// the others.
func (c *Cluster) start(ctx context.Context, component Component) error {
	_ = os.Remove(c.pidFile(component)) // it may not exist
	// envtest does not know contexts, but notices when the process ends.
	defer context.AfterFunc(ctx, func() {
		if pid := readPID(c.pidFile(component)); pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})()
	var err error
	switch component {
	case Etcd:
		err = c.plane.Etcd.Start()
	case APIServer:
		c.plane.APIServer.EtcdURL = c.plane.Etcd.URL
		err = c.plane.APIServer.Start()
	default:
		command := exec.Command(c.program(component), c.args(component)...)
		command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is not for the components
		if err = command.Start(); err == nil {
			go command.Wait() //nolint:errcheck // nothing but that it has ended matters
			err = await(ctx, "the script of "+string(component), func(context.Context) (bool, error) {
				return readPID(c.pidFile(component)) > 0, nil
			})
		}
	}
	p := &process{pid: readPID(c.pidFile(component)), exited: make(chan struct{})}
	if err != nil {
		if p.pid > 0 {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
		return errors.Join(context.Cause(ctx), err, c.failure(component))
	}
	c.mu.Lock()
	c.running[component] = p
	c.mu.Unlock()
	go c.watch(component, p)
	return context.Cause(ctx)
}

// watch ends the cluster when a process ends that is meant to run.
func (c *Cluster) watch(component Component, p *process) {
	for isAlive(p.pid) {
		time.Sleep(exitPoll)
	}
	close(p.exited)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[component] == p {
		c.end(c.failure(component))
	}
}

// failure returns an error with the end of a component's log.
func (c *Cluster) failure(component Component) error {
	content, err := os.ReadFile(c.Log(component))
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return fmt.Errorf("%s has ended; the end of its log, %s:\n\t%s", component, c.Log(component), strings.Join(lines, "\n\t"))
}

// release returns the process of a component. From now on, it may end without an error.
func (c *Cluster) release(component Component) (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.running[component]
	delete(c.running, component)
	if p == nil {
		return nil, fmt.Errorf("%s is not running", component)
	}
	return p, nil
}

// stopAll stops the API server after its clients, and etcd after the API server.
func (c *Cluster) stopAll() {
	for _, group := range [][]Component{{Kwok, Scheduler, ControllerManager}, {APIServer}, {Etcd}} {
		var stopping sync.WaitGroup
		for _, component := range group {
			stopping.Go(func() { _ = c.StopComponent(component) }) // it may not run
		}
		stopping.Wait()
	}
}

// StopComponent asks a component to end, and returns when it has.
func (c *Cluster) StopComponent(component Component) error {
	p, err := c.release(component)
	if err != nil {
		return err
	}
	// A paused process receives SIGTERM when it resumes.
	_, _ = syscall.Kill(p.pid, syscall.SIGTERM), syscall.Kill(p.pid, syscall.SIGCONT)
	select {
	case <-p.exited:
	case <-time.After(stopGrace):
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
		<-p.exited
	}
	return nil
}

// KillComponent ends a component as a crash would, and returns when it has ended.
func (c *Cluster) KillComponent(component Component) error {
	p, err := c.release(component)
	if err != nil {
		return err
	}
	_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have ended by itself
	<-p.exited
	return nil
}

// PauseComponent stops a component from running: its connections stay open, and nothing
// answers.
func (c *Cluster) PauseComponent(component Component) error {
	return c.signal(component, syscall.SIGSTOP)
}

// ResumeComponent ends a pause.
func (c *Cluster) ResumeComponent(component Component) error {
	return c.signal(component, syscall.SIGCONT)
}

func (c *Cluster) signal(component Component, signal syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.running[component]
	if p == nil {
		return fmt.Errorf("%s is not running", component)
	}
	return syscall.Kill(p.pid, signal)
}

// StartComponent starts a component that was stopped, killed or left out, with the address,
// keys and data that it had. It returns when the API server is ready.
func (c *Cluster) StartComponent(ctx context.Context, component Component) error {
	if c.signal(component, 0) == nil {
		return fmt.Errorf("%s is running", component)
	}
	if err := c.start(ctx, component); err != nil {
		return err
	}
	return c.awaitReady(ctx)
}
