package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
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

// measureAtRest measures a launch of a program on a cluster with that many Icecreams, in
// which there is nothing to do. It is an error if the program writes anything.
func measureAtRest(ctx context.Context, p *program, c *cluster.Cluster, icecreams int) (measured figures, err error) {
	dir, err := os.MkdirTemp("", "k8s-controller-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	process := lab.NewProgram(dir, p.binary, append([]string{"-kubeconfig=" + c.Kubeconfig(), p.metrics + "=" + address}, p.flags...)...)
	began := time.Now()
	if err := process.Launch(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, process.Terminate()) }()
	atRest, used, err := untilAtRest(ctx, process, address, icecreams)
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
	last, err := metricsOf(ctx, address)
	if err != nil {
		return nil, err
	}
	if used, err = usageOf(process.PID()); err != nil {
		return nil, err
	}
	measured.add("Heap, after garbage collection, MB", last.sum("go_memstats_heap_alloc_bytes", "")/1e6)
	measured.add("Resident memory at its peak, MB", used.peak)
	const requests = "rest_client_requests_total"
	if all, reads := last.sum(requests, ""), last.sum(requests, `method="GET"`); reads == 0 || all > reads {
		return nil, fmt.Errorf("everything was at rest, and yet %v of %v requests were writes", all-reads, all)
	}
	return measured, nil
}

// untilAtRest waits until a process has worked on all Icecreams and is at rest. It returns
// since when, and what it had used by then.
func untilAtRest(ctx context.Context, process *lab.Controller, address string, icecreams int) (since time.Time, used usage, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errors.New("the program is not at rest"))
	defer cancel()
	for since = time.Now(); ; {
		select {
		case <-time.After(restCheck):
		case <-ctx.Done():
			return since, used, context.Cause(ctx)
		}
		now, err := usageOf(process.PID())
		if err != nil {
			return since, used, err
		}
		if now.cpu-used.cpu >= restUse {
			since, used = time.Now(), now
		}
		if time.Since(since) < restFor {
			continue
		}
		metrics, err := metricsOf(ctx, address)
		if err != nil {
			return since, used, err
		}
		if int(metrics.sum("workqueue_work_duration_seconds_count", "")) >= icecreams {
			return since, used, nil
		}
		since = time.Now() // it waits for the API server
	}
}

// freeAddress returns the address of a port that is free now.
func freeAddress() (string, error) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return socket.Addr().String(), socket.Close()
}

// metrics is what a program serves as its metrics.
type metrics string

func metricsOf(ctx context.Context, address string) (metrics, error) {
	_, text, err := lab.Get(ctx, "http://"+address+"/metrics", "")
	return metrics(text), err
}

// sum returns the sum of a metric over all series whose labels contain that text.
func (m metrics) sum(name, labels string) (sum float64) {
	for line := range strings.Lines(string(m)) {
		series, value, _ := strings.Cut(line, " ")
		if of, _, _ := strings.Cut(series, "{"); of == name && strings.Contains(series, labels) {
			n, _ := strconv.ParseFloat(strings.TrimSpace(value), 64) // 0 for what is no number
			sum += n
		}
	}
	return sum
}
