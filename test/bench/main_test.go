package main

import "os"

func Example_printTable() {
	runs := func(requests, conflicts, memory float64) figures {
		return figures{{"Requests", requests}, {"Conflicts", conflicts}, {"Memory, MB", memory}}
	}
	ours := []figures{runs(2, 0, 48.96), runs(3, 0, 400), runs(1, 7, 12)}
	baseline := []figures{runs(5, 0, 150.4), runs(4, 0, 1), runs(5, 0, 999)}
	if err := printTable(os.Stdout, "3 runs", ours, baseline); err != nil {
		panic(err)
	}
	// Output:
	// | 3 runs | This | Baseline | Ratio |
	// |---|---|---|---|
	// | Requests | 2 | 5 | 0.40 |
	// | Conflicts | 0 | 0 |  |
	// | Memory, MB | 49.0 | 150 | 0.33 |
}
