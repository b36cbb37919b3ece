// Command bench measures the controller next to a twin of it that is written on
// controller-runtime (see twin), each on a cluster of its own, and prints one table.
//
//	make bench
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
	"os"
	"os/signal"
	"slices"
	"strings"

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
}

func run(ctx context.Context) (err error) {
	runs := flag.Int("runs", 3, "How often each program is measured; the table shows medians.")
	size := flag.Int("icecreams", 300, "Number of Icecreams.")
	only := flag.String("only", "", "Measure only the program of this name.")
	flag.Parse()
	programs := []*program{
		{name: "ours", module: ".", dir: ".", flags: []string{"-leader-elect=false", "-bind-address=127.0.0.1:0", "-workers=8"}, account: lab.ServiceAccount},
		{name: "twin", module: "test", dir: "./bench/twin", flags: []string{"-workers=8"}, account: "twin"},
	}
	programs = slices.DeleteFunc(programs, func(p *program) bool { return *only != "" && p.name != *only })
	for _, p := range programs {
		binary, remove, err := lab.Build(ctx, p.module, p.dir, "-ldflags=-s -w")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, remove()) }()
		p.binary = binary
	}
	measured := map[string]map[string][]float64{} // by row and program
	for i := range *runs {
		for _, p := range programs {
			fmt.Fprintf(os.Stderr, "run %d of %d: %s\n", i+1, *runs, p.name)
			figures, err := measure(ctx, p, *size)
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
	print(programs, measured, *size)
	return nil
}

// print prints the table: a row for each figure, with its median for each program, and the
// ratio of the first program to the last.
func print(programs []*program, measured map[string]map[string][]float64, size int) {
	fmt.Printf("| %d Icecreams |", size)
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
	case figure == float64(int64(figure)) || figure >= 100:
		return fmt.Sprintf("%.0f", figure)
	case figure >= 10:
		return fmt.Sprintf("%.1f", figure)
	}
	return fmt.Sprintf("%.2f", figure)
}

func median(figures []float64) float64 {
	if len(figures) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
