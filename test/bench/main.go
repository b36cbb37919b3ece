// Command bench measures the controller next to a twin of it that is written on
// controller-runtime (see twin), each on a cluster of its own. It prints a table for each
// number of Icecreams. The tables in docs/performance.md are from
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
	"strconv"
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
	name        string
	module, dir string
	flags       []string
	binary      string
	// metrics is the flag for the address to serve metrics on by plain HTTP.
	metrics string
}

func run(ctx context.Context) (err error) {
	var c source.Config
	from := flag.String("source", "cluster", "What the programs run against: a local \"cluster\", or an API server with \"synthetic\" objects at rest.")
	runs := flag.Int("runs", 3, "How often each program is measured; the tables show medians.")
	icecreams := flag.String("icecreams", "300", "Numbers of Icecreams to measure with, separated by commas.")
	flag.IntVar(&c.Pods, "pods", 0, "Number of Pods of each Icecream. Synthetic only.")
	flag.IntVar(&c.Others, "others", 0, "Number of Deployments that are no Icecream's, with a Pod each. Synthetic only.")
	settle := flag.Duration("settle", 0, "How long to wait, once a program is at rest, before its memory is read. The Go runtime collects garbage after two minutes at the latest. Synthetic only.")
	only := flag.String("only", "", "Measure only the program of this name.")
	flag.Parse()
	sizes, err := numbers(*icecreams)
	if err != nil {
		return fmt.Errorf("-icecreams=%s: %w", *icecreams, err)
	}
	programs := []*program{
		{name: "ours", module: ".", dir: ".", flags: []string{"-leader-elect=false", "-bind-address=127.0.0.1:0", "-workers=8"}, metrics: "-insecure-bind-address"},
		{name: "twin", module: "test", dir: "./bench/twin", flags: []string{"-workers=8"}, metrics: "-metrics-bind-address"},
	}
	programs = slices.DeleteFunc(programs, func(p *program) bool { return *only != "" && p.name != *only })
	measure := func(p *program, size int) (map[string]float64, error) { return measure(ctx, p, size) }
	switch *from {
	case "cluster":
	case "synthetic":
		measure = func(p *program, size int) (map[string]float64, error) {
			c.Icecreams = size
			return measureSynthetic(ctx, p, c, *settle)
		}
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
	for _, size := range sizes {
		m := measurement{size, size * c.Pods, map[string]map[string][]float64{}}
		for i := range *runs {
			for _, p := range programs {
				fmt.Fprintf(os.Stderr, "%d Icecreams, run %d of %d: %s\n", size, i+1, *runs, p.name)
				figures, err := measure(p, size)
				if err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
				m.add(p, figures)
			}
		}
		m.printTable(programs)
	}
	return nil
}

// numbers reads positive numbers that are separated by commas.
func numbers(list string) (numbers []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		if n < 1 {
			return nil, errors.New("there is nothing to measure without any")
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// measurement is what was measured with one number of Icecreams, in each run, by the name of
// the program and the row of the table.
type measurement struct {
	icecreams, pods int
	figures         map[string]map[string][]float64
}

func (m measurement) add(p *program, figures map[string]float64) {
	if m.figures[p.name] == nil {
		m.figures[p.name] = map[string][]float64{}
	}
	for row, figure := range figures {
		m.figures[p.name][row] = append(m.figures[p.name][row], figure)
	}
}

// medians returns the median of each row of a program.
func (m measurement) medians(p *program) map[string]float64 {
	medians := map[string]float64{}
	for row, figures := range m.figures[p.name] {
		medians[row] = median(figures)
	}
	return medians
}

// printTable prints a row for each figure, with its median for each program, and the ratio
// of the first program to the last.
func (m measurement) printTable(programs []*program) {
	fmt.Printf("| %d Icecreams", m.icecreams)
	if m.pods > 0 {
		fmt.Printf(", %d Pods", m.pods)
	}
	fmt.Print(" |")
	rows := map[string]bool{}
	for _, p := range programs {
		fmt.Printf(" %s |", p.name)
		for row := range m.figures[p.name] {
			rows[row] = true
		}
	}
	fmt.Printf(" ratio |\n|---|%s---|\n", strings.Repeat("---|", len(programs)))
	ours, twin := m.medians(programs[0]), m.medians(programs[len(programs)-1])
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		fmt.Printf("| %s |", strings.TrimLeft(row, "0123456789 "))
		for _, p := range programs {
			fmt.Printf(" %s |", round(at(m.medians(p), row)))
		}
		if twin[row] > 0 {
			fmt.Printf(" %s |\n", round(at(ours, row)/twin[row]))
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

// at returns a figure; NaN if there is none.
func at(figures map[string]float64, row string) float64 {
	figure, ok := figures[row]
	if !ok {
		return math.NaN()
	}
	return figure
}
