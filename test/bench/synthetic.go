package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/test/bench/source"
	"nicoleh.io/k8s-controller/test/lab"
)

const (
	// probes is how many changes are made one by one, for latencies.
	probes = 20
	// A program is at rest when it has used less than this much CPU time for so long.
	restUse   = 100 * time.Millisecond
	restFor   = 2 * time.Second
	restCheck = 100 * time.Millisecond
)

// trial measures one program against a source.
type trial struct {
	source     *source.Source
	size       int
	program    *program
	dir        string
	kubeconfig string
	probed     map[cache.ObjectName]bool
	figures    map[string]float64
}

// measureSynthetic measures one program against a source of its own, in which there is
// nothing to do until a probe changes an Icecream's spec: the program then has to write to
// the Icecream's Deployment.
func measureSynthetic(ctx context.Context, p *program, c source.Config, settle time.Duration) (figures map[string]float64, err error) {
	dir, err := os.MkdirTemp("", "k8s-controller-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	t := &trial{size: c.Icecreams, program: p, dir: dir, probed: map[cache.ObjectName]bool{}, figures: map[string]float64{}}
	if t.source, err = source.Start(c); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.source.Close()) }()
	if t.kubeconfig, err = t.source.WriteKubeconfig(dir); err != nil {
		return nil, err
	}
	if err := t.alone(ctx, settle); err != nil {
		return nil, err
	}
	return t.figures, nil
}

// alone measures a single process, from its launch until it is at rest, and how long it
// takes for single changes.
func (t *trial) alone(ctx context.Context, settle time.Duration) (err error) {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	process := t.newProcess(t.program.metrics + "=" + address)
	own, err := usageOf(os.Getpid())
	if err != nil {
		return err
	}
	began := time.Now()
	if err := process.Launch(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, process.Terminate()) }()
	listed, err := t.listed(ctx, process)
	if err != nil {
		return err
	}
	first, err := t.probe(ctx, process, t.size/2)
	if err != nil {
		return err
	}
	atRest, used, err := rest(ctx, process)
	if err != nil {
		return err
	}
	ownNow, err := usageOf(os.Getpid())
	if err != nil {
		return err
	}
	t.figures["01 launch until the lists were sent, s"] = listed.Sub(began).Seconds()
	t.figures["02 launch until the first change was carried out, s"] = first.Sub(began).Seconds()
	t.figures["03 launch until at rest, s"] = atRest.Sub(began).Seconds()
	t.figures["04 CPU of it, s"] = used.cpu.Seconds()
	t.figures["09 CPU of the source meanwhile, s"] = (ownNow.cpu - own.cpu).Seconds()
	if err := t.memory(ctx, process, address, settle); err != nil {
		return err
	}
	if err := t.latency(ctx, process); err != nil {
		return err
	}
	t.figures["08 writes other than for changes"] = t.unexpected(began)
	return nil
}

// newProcess returns a process of the program.
func (t *trial) newProcess(flags ...string) *lab.Controller {
	return lab.NewProgram(t.dir, t.program.binary, append(append([]string{"-kubeconfig=" + t.kubeconfig}, t.program.flags...), flags...)...)
}

// listed waits until a process has been sent all objects, and returns when that was.
func (t *trial) listed(ctx context.Context, process *lab.Controller) (last time.Time, err error) {
	for _, resource := range []string{source.Icecreams.Resource, source.Deployments.Resource, source.Pods.Resource} {
		request, err := t.await(ctx, "a watch of "+resource, func(r source.Request) bool {
			return r.Agent == process.Agent && r.Verb == "watch" && r.Resource == resource
		})
		if err != nil {
			return last, err
		}
		if request.At.After(last) {
			last = request.At
		}
	}
	return last, nil
}

// probe changes an Icecream, and returns when the process has requested a change of its
// Deployment.
func (t *trial) probe(ctx context.Context, process *lab.Controller, number int) (time.Time, error) {
	began := time.Now()
	name, err := t.change(number)
	if err != nil {
		return began, err
	}
	request, err := t.await(ctx, "a write", func(r source.Request) bool {
		return r.Name == name && isOfDeployment(r) && r.Agent == process.Agent && r.At.After(began)
	})
	return request.At, err
}

// change changes the image of an Icecream to another at each call.
func (t *trial) change(number int) (cache.ObjectName, error) {
	name := t.source.Icecream(number % t.size)
	t.probed[name] = true
	return name, t.source.SetImage(name, fmt.Sprintf("registry.nicoleh.io/cone:2.0.%d", time.Now().UnixNano()))
}

func isOfDeployment(r source.Request) bool {
	return r.IsWrite() && r.Resource == source.Deployments.Resource
}

// await waits for a request.
func (t *trial) await(ctx context.Context, what string, matches func(source.Request) bool) (source.Request, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%s has not come", what))
	defer cancel()
	return t.source.Await(ctx, matches)
}

// unexpected counts the writes since some time that no change has asked for. Leases and
// events do not count.
func (t *trial) unexpected(since time.Time) float64 {
	n := 0
	for _, r := range t.source.Requests() {
		if r.IsWrite() && r.At.After(since) && r.Resource != "leases" && r.Resource != "events" && !t.probed[r.Name] {
			if n++; n <= 3 {
				fmt.Fprintf(os.Stderr, "nothing asked for this: %+v\n", r)
			}
		}
	}
	return float64(n)
}

// rest waits until a process is at rest. It returns since when, and what it had used by
// then.
func rest(ctx context.Context, process *lab.Controller) (since time.Time, used usage, err error) {
	since = time.Now()
	if used, err = usageOf(process.PID()); err != nil {
		return since, used, err
	}
	for time.Since(since) < restFor {
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
	}
	return since, used, nil
}

// memory measures the memory of a process after some time.
func (t *trial) memory(ctx context.Context, process *lab.Controller, address string, settle time.Duration) error {
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	used, err := usageOf(process.PID())
	if err != nil {
		return err
	}
	heap, err := metricsOf(ctx, address, "go_memstats_heap_alloc_bytes", "go_memstats_heap_inuse_bytes", "go_memstats_heap_objects")
	if err != nil {
		return err
	}
	used.record(t.figures, "05 RSS after it")
	t.figures["05 RSS at its peak, MB"] = float64(used.peak) / 1e6
	t.figures["06 heap: allocated, MB"] = heap["go_memstats_heap_alloc_bytes"] / 1e6
	t.figures["06 heap: in use, MB"] = heap["go_memstats_heap_inuse_bytes"] / 1e6
	t.figures["06 heap: objects, thousands"] = heap["go_memstats_heap_objects"] / 1e3
	return nil
}

// latency measures how long the program takes for single changes.
func (t *trial) latency(ctx context.Context, process *lab.Controller) error {
	var took []float64
	for i := range probes {
		began := time.Now()
		written, err := t.probe(ctx, process, i*7919)
		if err != nil {
			return err
		}
		took = append(took, written.Sub(began).Seconds()*1e3)
	}
	t.figures["07 change to request for Deployment, p50, ms"] = median(took)
	return nil
}

// freeAddress returns the address of a port that is free now.
func freeAddress() (string, error) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return socket.Addr().String(), socket.Close()
}

// metricsOf returns the values of metrics without labels.
func metricsOf(ctx context.Context, address string, names ...string) (map[string]float64, error) {
	_, body, err := lab.Get(ctx, "http://"+address+"/metrics", "")
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for line := range strings.Lines(body) {
		for _, name := range names {
			if text, ok := strings.CutPrefix(line, name+" "); ok {
				if values[name], err = strconv.ParseFloat(strings.TrimSpace(text), 64); err != nil {
					return nil, err
				}
			}
		}
	}
	if len(values) != len(names) {
		return nil, fmt.Errorf("%s has %v of the metrics %v", filepath.Join(address, "metrics"), values, names)
	}
	return values, nil
}
