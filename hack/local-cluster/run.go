package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
)

const (
	commandGrace = 15 * time.Second // for a command that was asked to end
	groupPoll    = 10 * time.Millisecond
)

// errExit is the end of a command that ran, with a status that is not 0.
type errExit int

func (e errExit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// with runs a command on a cluster of its own. The cluster ends with the command, and the
// command with the cluster, with this process and with its parent. So does whatever the
// command leaves behind in its process group.
//
// The status is the command's, or 128 and the number of the signal that ended it.
func with(ctx context.Context, args []string, _, stderr io.Writer) error {
	flags, options := clusterFlags("run", stderr)
	if err := parse(flags, args, stderr); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		fmt.Fprintln(stderr, "no command to run; it follows the flags, best after --")
		flags.Usage()
		return errUsage
	}
	// From here on, signals are the command's.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	ctx, cancel := endWithParent(ctx)
	defer cancel()
	running, err := cluster.Start(ctx, options())
	if err != nil {
		select {
		case received := <-signals:
			return errExit(128 + int(received.(syscall.Signal)))
		default:
			return err
		}
	}
	status, err := runOn(ctx, running, flags.Args(), signals, stderr)
	if err := errors.Join(err, running.Err(), running.Stop()); err != nil {
		return err
	}
	if status != 0 {
		return errExit(status)
	}
	return nil
}

// runOn runs a command until it ends, and then what is left of its process group.
func runOn(ctx context.Context, running *cluster.Cluster, args []string, signals <-chan os.Signal, stderr io.Writer) (status int, err error) {
	command := exec.Command(args[0], args[1:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	bin := filepath.Dir(running.Kubectl())
	command.Env = append(os.Environ(),
		"KUBECONFIG="+running.Kubeconfig(),
		"KUBECACHEDIR="+filepath.Join(running.Dir(), "kubectl"),
		"LOCAL_CLUSTER_DIR="+running.Dir(),
		"PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	command.SysProcAttr = ownGroup()
	terminal := foreground(command)

	ended, err := start(command)
	if err != nil {
		return 0, fmt.Errorf("starting %s: %w", args[0], err)
	}
	group := command.Process.Pid
	defer endGroup(group)
	defer terminal.reclaim()

	var deadline <-chan time.Time
	forward := func(signal syscall.Signal) {
		_ = unix.Kill(-group, signal) // it may have ended
		if deadline == nil {
			deadline = time.After(commandGrace)
		}
	}
	clusterDone, orphaned := running.Done(), ctx.Done()
	for {
		select {
		case <-ended:
			return exitStatus(command.ProcessState), nil
		case received := <-signals:
			forward(received.(syscall.Signal))
		case <-clusterDone:
			clusterDone = nil
			fmt.Fprintln(stderr, "the cluster has failed; ending the command")
			forward(syscall.SIGTERM)
		case <-orphaned:
			orphaned = nil
			if errors.Is(context.Cause(ctx), errOrphaned) { // otherwise the signal is on its way
				forward(syscall.SIGTERM)
			}
		case <-deadline:
			_ = unix.Kill(-group, unix.SIGKILL)
		}
	}
}

// start starts a command, and closes the channel when it has ended. A thread stays with
// it: the kernel ends the command when the thread that started it ends.
func start(command *exec.Cmd) (<-chan struct{}, error) {
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait() // its state says how it ended
			close(ended)
		}
	}()
	return ended, <-started
}

// exitStatus returns the status that a shell would show.
func exitStatus(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// endGroup ends all processes of a group and returns when they are gone.
func endGroup(group int) {
	_ = unix.Kill(-group, unix.SIGTERM)
	for deadline := time.Now().Add(commandGrace); unix.Kill(-group, 0) == nil; time.Sleep(groupPoll) {
		if time.Now().After(deadline) {
			_ = unix.Kill(-group, unix.SIGKILL)
			return
		}
	}
}

// terminalOwner is the process group that had the terminal before the command.
type terminalOwner int

// foreground gives the command the terminal, if there is one on its standard input and
// this process has it: Ctrl-C then reaches the command alone.
func foreground(command *exec.Cmd) terminalOwner {
	stdin := int(os.Stdin.Fd())
	owner, err := unix.IoctlGetInt(stdin, unix.TIOCGPGRP)
	if err != nil || owner != unix.Getpgrp() {
		return 0
	}
	command.SysProcAttr.Foreground, command.SysProcAttr.Ctty = true, stdin
	return terminalOwner(owner)
}

// reclaim takes the terminal back.
func (owner terminalOwner) reclaim() {
	if owner == 0 {
		return
	}
	// Otherwise the kernel would stop this process, which is in the background.
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(os.Stdin.Fd()), unix.TIOCSPGRP, int(owner))
}

// clusterFlags returns a flag set with the flags that describe a cluster, and a function
// that returns what they say once they have been parsed.
func clusterFlags(command string, stderr io.Writer) (*flag.FlagSet, func() cluster.Options) {
	options := cluster.Options{Log: stderr}
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.StringVar(&options.Dir, "dir", "", "keep everything in this `directory`; a later run carries on there (default a temporary one)")
	flags.IntVar(&options.Nodes, "nodes", cluster.DefaultNodes, "`number` of nodes")
	flags.StringVar(&options.FeatureGates, "feature-gates", "", "feature gates of all Kubernetes components, as in `A=true,B=false`")
	flags.BoolVar(&options.WithoutControllerManager, "without-controller-manager", false, "start no controllers")
	flags.BoolVar(&options.AuditBodies, "audit-bodies", false, "record the bodies of requests and responses too")
	flags.Func("audit-user", "record the requests of this user; repeatable, * for everybody", func(name string) error {
		if strings.TrimSpace(name) == "" {
			return errors.New("empty")
		}
		options.AuditUsers = append(options.AuditUsers, name)
		return nil
	})
	return flags, func() cluster.Options {
		if options.Nodes == 0 {
			options.Nodes = -1 // in the package, 0 stands for the default
		}
		return options
	}
}
