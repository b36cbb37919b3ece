// Command bench measures the controller next to a baseline that does the same with
// controller-runtime (see baseline), and prints a table. It measures 300 new Icecreams on a
// local cluster, and checks that every status is true, which generators of load such as kube-burner do not:
//
//	go -C test run ./bench
//
// or, with -synthetic, a launch with 10,000 Icecreams and 100,000 Pods at rest, which are
// created as they are after a rollout (see objects). A program that writes anything then
// fails the benchmark. Other numbers, measured once:
//
//	go -C test run ./bench -synthetic -icecreams=1000 -runs=1
//
// The programs run one after the other, with 8 workers each, and both record events. No
// admission policies are installed: they cost each write up to a millisecond. Most of the
// time until all statuses are correct is the cluster's own, whose Deployment controller makes
// at most 20 requests a second.
//
// Ratios within one run say more than the figures themselves: on another machine, or next
// to other work, all of them change together. docs/operating.md (Speed and load) has some.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/test/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// program is one of the two that are compared.
type program struct {
	name        string
	module, dir string // of its source
	flags       []string
	binary      string
	metrics     string // the flag for the address to serve metrics on by plain HTTP
}

// figures are what one run of a program has measured, in the order of the table. They have
// the same names in every run.
type figures []figure

type figure struct {
	name  string // with the unit
	value float64
}

func (f *figures) add(name string, value float64) { *f = append(*f, figure{name, value}) }

func run(ctx context.Context) (err error) {
	runs := flag.Int("runs", 3, "How often each program is measured, at least 1. The table shows medians.")
	synthetic := flag.Bool("synthetic", false, "Measure a launch with Icecreams at rest, whose objects nothing runs, instead of 300 new Icecreams.")
	icecreams := flag.Int("icecreams", 10_000, "How many Icecreams are at rest.")
	pods := flag.Int("pods", 10, "How many Pods each of them has.")
	flag.BoolVar(&withTemplate, "template", false, "Give each Icecream a spec.template, which the baseline does not know.")
	flag.Parse()
	if *runs < 1 {
		return errors.New("-runs must be at least 1")
	}
	title, measure := clusterTitle, measureOnCluster
	if *synthetic {
		title = fmt.Sprintf("%d Icecreams with %d Pods each", *icecreams, *pods)
		var c *cluster.Cluster
		if c, err = startAtRest(ctx, *icecreams, *pods); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Stop()) }()
		measure = func(ctx context.Context, p *program) (figures, error) { return measureAtRest(ctx, p, c, *icecreams) }
	}
	if err := os.Unsetenv("GOGC"); err != nil { // hack/build.env has one for the compiler
		return err
	}
	programs := []*program{
		{name: "controller", module: ".", dir: ".", flags: []string{"-leader-elect=false", "-bind-address=127.0.0.1:0", "-workers=8"}, metrics: "-insecure-bind-address"},
		{name: "baseline", module: "test", dir: "./bench/baseline", flags: []string{"-workers=8"}, metrics: "-metrics-bind-address"},
	}
	for _, p := range programs {
		var remove func() error
		if p.binary, remove, err = lab.Build(ctx, p.module, p.dir, "-ldflags=-s -w"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, remove()) }()
	}
	measured := map[string][]figures{}
	for i := range *runs {
		for _, p := range programs {
			fmt.Fprintf(os.Stderr, "run %d of %d: %s\n", i+1, *runs, p.name)
			f, err := measure(ctx, p)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			measured[p.name] = append(measured[p.name], f)
		}
	}
	return printTable(os.Stdout, title, measured["controller"], measured["baseline"])
}

// printTable prints a row for each figure: its median for each program, and the ratio of
// the medians unless the baseline's is zero.
func printTable(to io.Writer, title string, ours, baseline []figures) error {
	if _, err := fmt.Fprintf(to, "| %s | This | Baseline | Ratio |\n|---|---|---|---|\n", title); err != nil {
		return err
	}
	for i, row := range ours[0] {
		a, b, ratio := medianOf(ours, i), medianOf(baseline, i), ""
		if b > 0 {
			ratio = fmt.Sprintf("%.2f", a/b)
		}
		if _, err := fmt.Fprintf(to, "| %s | %s | %s | %s |\n", row.name, round(a), round(b), ratio); err != nil {
			return err
		}
	}
	return nil
}

// medianOf returns the median of one row of the table.
func medianOf(runs []figures, row int) float64 {
	var values []float64
	for _, f := range runs {
		values = append(values, f[row].value)
	}
	return median(values)
}

// median returns the median of at least one value; of an even number, the greater one.
func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// round returns a figure with three digits, or all digits before the point.
func round(value float64) string {
	switch {
	case value == math.Trunc(value) || value >= 100:
		return fmt.Sprintf("%.0f", value)
	case value >= 10:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.2f", value)
}
