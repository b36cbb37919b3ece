package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"nicoleh.io/k8s-controller/test/bench/source"
	"nicoleh.io/k8s-controller/test/lab"
)

const (
	// A program is at rest when it has used less than this much CPU time, in seconds, for so
	// long.
	restUse   = 0.1
	restFor   = 2 * time.Second
	restCheck = 100 * time.Millisecond
	// settle is how long a program is at rest before its heap is read. The Go runtime
	// collects garbage after two minutes at the latest.
	settle = 130 * time.Second
)

// measureAtRest measures a launch of a program against a source of its own, with that many
// Icecreams and Pods of each, in which there is nothing to do. It is an error if the program
// writes anything.
func measureAtRest(ctx context.Context, p *program, icecreams, pods int) (measured figures, err error) {
	dir, err := os.MkdirTemp("", "k8s-controller-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	from, err := source.Start(icecreams, pods)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	kubeconfig, err := from.WriteKubeconfig(dir)
	if err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	process := lab.NewProgram(dir, p.binary, append([]string{"-kubeconfig=" + kubeconfig, p.metrics + "=" + address}, p.flags...)...)
	began := time.Now()
	if err := process.Launch(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, process.Terminate()) }()
	atRest, used, err := untilAtRest(ctx, process, from)
	if err != nil {
		return nil, err
	}
	measured.add("Launch until at rest, s", atRest.Sub(began).Seconds())
	measured.add("CPU time of it, s", used.cpu)
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	heap, err := heapOf(ctx, address)
	if err != nil {
		return nil, err
	}
	if used, err = usageOf(process.PID()); err != nil {
		return nil, err
	}
	measured.add("Heap, after garbage collection, MB", heap)
	measured.add("Resident memory at its peak, MB", used.peak)
	if refused := from.Refused(); len(refused) > 0 {
		return nil, fmt.Errorf("everything was at rest, and yet there were %d requests such as %s", len(refused), refused[0])
	}
	return measured, nil
}

// untilAtRest waits until a process has received all objects and is at rest. It returns
// since when, and what it had used by then.
func untilAtRest(ctx context.Context, process *lab.Controller, from *source.Source) (since time.Time, used usage, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the program is not at rest"))
	defer cancel()
	for since = time.Now(); time.Since(since) < restFor; {
		select {
		case <-time.After(restCheck):
		case <-ctx.Done():
			return since, used, context.Cause(ctx)
		}
		now, err := usageOf(process.PID())
		if err != nil {
			return since, used, err
		}
		if now.cpu-used.cpu >= restUse || !from.IsSent() {
			since, used = time.Now(), now
		}
	}
	return since, used, nil
}

// freeAddress returns the address of a port that is free now.
func freeAddress() (string, error) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return socket.Addr().String(), socket.Close()
}

// heapOf returns how many MB of the heap are allocated, by the metrics of a program.
func heapOf(ctx context.Context, address string) (float64, error) {
	const metric = "go_memstats_heap_alloc_bytes"
	_, text, err := lab.Get(ctx, "http://"+address+"/metrics", "")
	if err != nil {
		return 0, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return 0, err
	}
	if families[metric] == nil {
		return 0, fmt.Errorf("the program has no metric %s", metric)
	}
	return families[metric].GetMetric()[0].GetGauge().GetValue() / 1e6, nil
}
