// Command bench measures the controller next to a twin of it that is written on
// controller-runtime (see twin), each on a cluster of its own, and prints one table.
//
//	make bench
//
// With -source=synthetic, it measures them at sizes that a control plane on one machine
// cannot hold, against package source:
//
//	cd test && go run ./bench -source=synthetic -icecreams=10000 -pods=10
//
// Ratios within one run say more than the figures themselves: on another machine, or next
// to other work, all of them change together.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"

	"nicoleh.io/k8s-controller/test/bench/source"
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

// A program is one of those that are compared.
type program struct {
	name            string
	module, dir     string
	flags           []string
	account, binary string
	// metrics is the flag for the address to serve metrics on by plain HTTP.
	metrics string
	// elects reports whether the program has the flag -leader-elect.
	elects bool
}

func run(ctx context.Context) (err error) {
	var c source.Config
	from := flag.String("source", "cluster", "What the programs run against: a local \"cluster\", or an API server with \"synthetic\" objects at rest.")
	runs := flag.Int("runs", 3, "How often each program is measured; the table shows medians.")
	flag.IntVar(&c.Icecreams, "icecreams", 300, "Number of Icecreams.")
	flag.IntVar(&c.Pods, "pods", 0, "Number of Pods of each Icecream. Synthetic only.")
	flag.IntVar(&c.Others, "others", 0, "Number of Deployments that are no Icecream's, with a Pod each. Synthetic only.")
	settle := flag.Duration("settle", 0, "How long to wait, once a program is at rest, before its memory is read. The Go runtime collects garbage after two minutes at the latest. Synthetic only.")
	failover := flag.Bool("failover", false, "Also measure what happens when a leader ends. Synthetic only.")
	only := flag.String("only", "", "Measure only the program of this name.")
	flag.Parse()
	if c.Icecreams < 1 {
		return fmt.Errorf("-icecreams=%d: there is nothing to measure without any", c.Icecreams)
	}
	programs := []*program{
		{name: "ours", module: ".", dir: ".", flags: []string{"-leader-elect=false", "-bind-address=127.0.0.1:0", "-workers=8"}, account: lab.ServiceAccount, metrics: "-insecure-bind-address", elects: true},
		{name: "twin", module: "test", dir: "./bench/twin", flags: []string{"-workers=8"}, account: "twin", metrics: "-metrics-bind-address"},
	}
	programs = slices.DeleteFunc(programs, func(p *program) bool { return *only != "" && p.name != *only })
	measure := func(p *program) (map[string]float64, error) { return measure(ctx, p, c.Icecreams) }
	switch *from {
	case "cluster":
	case "synthetic":
		measure = func(p *program) (map[string]float64, error) { return measureSynthetic(ctx, p, c, *settle, *failover) }
	default:
		return fmt.Errorf("-source=%s is neither cluster nor synthetic", *from)
	}
	for _, p := range programs {
		var remove func() error
		if p.binary, remove, err = lab.Build(ctx, p.module, p.dir, "-ldflags=-s -w"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, remove()) }()
	}
	measured := map[string]map[string][]float64{} // by row and program
	for i := range *runs {
		for _, p := range programs {
			fmt.Fprintf(os.Stderr, "run %d of %d: %s\n", i+1, *runs, p.name)
			figures, err := measure(p)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			for row, figure := range figures {
				if measured[row] == nil {
					measured[row] = map[string][]float64{}
				}
				measured[row][p.name] = append(measured[row][p.name], figure)
			}
		}
	}
	printTable(programs, measured, c)
	return nil
}

// printTable prints a row for each figure, with its median for each program, and the ratio
// of the first program to the last.
func printTable(programs []*program, measured map[string]map[string][]float64, c source.Config) {
	fmt.Printf("| %d Icecreams", c.Icecreams)
	if c.Pods > 0 {
		fmt.Printf(", %d Pods", c.Icecreams*c.Pods)
	}
	fmt.Print(" |")
	for _, p := range programs {
		fmt.Printf(" %s |", p.name)
	}
	fmt.Printf(" ratio |\n|---|%s---|\n", strings.Repeat("---|", len(programs)))
	for _, row := range slices.Sorted(maps.Keys(measured)) {
		fmt.Printf("| %s |", strings.TrimLeft(row, "0123456789 "))
		for _, p := range programs {
			fmt.Printf(" %s |", round(median(measured[row][p.name])))
		}
		ours, twin := median(measured[row][programs[0].name]), median(measured[row][programs[len(programs)-1].name])
		if twin > 0 {
			fmt.Printf(" %s |\n", round(ours/twin))
		} else {
			fmt.Println("  |")
		}
	}
}

func round(figure float64) string {
	switch {
	case math.IsNaN(figure):
		return "–"
	case figure == float64(int64(figure)) || figure >= 100:
		return fmt.Sprintf("%.0f", figure)
	case figure >= 10:
		return fmt.Sprintf("%.1f", figure)
	}
	return fmt.Sprintf("%.2f", figure)
}

// median returns the median of some figures; NaN if there are none.
func median(figures []float64) float64 {
	if len(figures) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
