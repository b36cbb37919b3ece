package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
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
	tailLines = 20
)

// script runs a component. It records the process ID, because envtest does not reveal its
// processes. envtest also runs it with --help to see which flags exist.
//
// The result must not depend on the caller's environment. With more memory, the components
// use a tenth less processor time; very many objects must not take all of it.
const script = `#!/bin/sh
dir=${0%%/run/*} name=${0##*/}
if [ "$1" != --help ]; then
  echo $$ >"${dir}/pids/${name}"
  exec >>"${dir}/logs/${name}.log" 2>&1
fi
exec env -i PATH="${PATH}" TMPDIR="${TMPDIR:-/tmp}" HOME="${dir}" GOGC=400 GOMEMLIMIT=4GiB %s "$@"
`

// program returns the path of the script of a component.
func (c *Cluster) program(component Component) string { return c.file("run", string(component)) }

// start starts a component. It returns when etcd or the API server serves, and at once for
// the others.
func (c *Cluster) start(component Component) error {
	var pid int
	var err error
	switch component {
	case Etcd:
		err = c.plane.Etcd.Start()
		pid = readPID(c.file("pids", string(component)))
	case APIServer:
		c.plane.APIServer.EtcdURL = c.plane.Etcd.URL
		err = c.plane.APIServer.Start()
		pid = readPID(c.file("pids", string(component)))
	default:
		command := exec.Command(c.program(component), c.args(component)...)
		command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is not for the components
		if err = command.Start(); err == nil {
			pid = command.Process.Pid
			go command.Wait() //nolint:errcheck // nothing but that it has ended matters
		}
	}
	if err != nil {
		return errors.Join(err, c.failure(component))
	}
	c.mu.Lock()
	c.running[component] = pid
	c.mu.Unlock()
	go c.watch(component, pid)
	return nil
}

// watch ends the cluster when a process ends that is meant to run.
func (c *Cluster) watch(component Component, pid int) {
	awaitExit(pid)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[component] == pid {
		c.end(c.failure(component))
	}
}

// failure returns an error with the end of a component's log.
func (c *Cluster) failure(component Component) error {
	path := c.file("logs", string(component)+".log")
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return fmt.Errorf("%s has ended; the end of its log, %s:\n\t%s", component, path, strings.Join(lines, "\n\t"))
}

// killAll kills the clients of the API server before it, and etcd after it.
func (c *Cluster) killAll() {
	for _, component := range []Component{Kwok, Scheduler, ControllerManager, APIServer, Etcd} {
		_ = c.KillComponent(component) // it may not run
	}
}

// KillComponent ends a component as a crash would, and returns when it has ended.
func (c *Cluster) KillComponent(component Component) error {
	c.mu.Lock()
	pid, isRunning := c.running[component]
	delete(c.running, component)
	c.mu.Unlock()
	if !isRunning {
		return fmt.Errorf("%s is not running", component)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
	awaitExit(pid)
	return nil
}

// StartComponent starts a component that was killed, with the address, keys and data that it
// had. It returns when the API server is ready.
func (c *Cluster) StartComponent(ctx context.Context, component Component) error {
	if err := c.start(component); err != nil {
		return err
	}
	return c.awaitReady(ctx)
}

func awaitExit(pid int) {
	for isAlive(pid) {
		time.Sleep(exitPoll)
	}
}
