package simulation

import (
	"flag"
	"os"
	"strconv"
	"testing"
	"time"
)

// seedsEnv names the variable with the default of -sim.seeds. Other than with a flag of our
// own, the go command remembers that a test has passed.
const seedsEnv = "SIM_SEEDS"

var (
	simSeed  = flag.Uint64("sim.seed", 0, "the only seed of TestSimulation, whose trace is printed")
	simFirst = flag.Uint64("sim.first", 1, "the first seed of TestSimulation")
	simSeeds = flag.Int("sim.seeds", 0, "how many seeds TestSimulation runs; 0 is what $"+seedsEnv+" says, or none")
	simFor   = flag.Duration("sim.for", 0, "for how long TestSimulation runs, instead of a number of seeds")
	simMost  = flag.Int("sim.failures", 3, "after how many failures TestSimulation ends")
	simPlain = flag.Bool("sim.plain", false, "report failures as they are, instead of making them shorter")
)

// Repeated is how often a write can be sent, within the time for edits, that others undo or
// refuse: at once and then after 5 ms, 10 ms, 20 ms, and so on.
const Repeated = 16

// Test runs histories, for a time or else for a number of seeds, as the flags or $SIM_SEEDS ask;
// by default, none. Call it from a TestSimulation, in a package whose tests set the randomness of
// the process, by go:debug randseednop=0.
func (s Simulation) Test(t *testing.T) {
	if err := register(); err != nil {
		t.Fatal(err)
	}
	limit := *simFor
	seed, n := *simFirst, seeds(t)
	if *simSeed != 0 {
		seed, n = *simSeed, 1
	}
	if n == 0 && limit == 0 {
		t.Skip("it takes a while: ask for it by -sim.seeds, -sim.for or -sim.seed")
	}
	began, histories, failures := time.Now(), 0, 0
	total, virtual := map[string]int{}, time.Duration(0)
	for ; failures < *simMost; seed++ {
		if limit > 0 && time.Since(began) > limit || limit == 0 && histories == n {
			break
		}
		histories++
		result := s.history(t, seed, nil)
		virtual += result.virtual
		for what, n := range result.counts {
			total[what] += n
		}
		if *simSeed != 0 {
			t.Log(&result)
		}
		if result.check == "" {
			continue
		}
		failures++
		if !*simPlain {
			result = s.shrink(t, result)
		}
		t.Errorf("failure after %d histories; go test -run '^TestSimulation$' -sim.seed=%d shows all of this:\n%s", histories, seed, &result)
	}
	t.Logf("%d histories in %s: %s simulated; %v", histories, time.Since(began).Round(time.Second), virtual.Round(time.Hour), total)
}

// seeds returns how many seeds are to be run.
func seeds(t *testing.T) int {
	variable := os.Getenv(seedsEnv)
	if *simSeeds > 0 || variable == "" {
		return *simSeeds
	}
	n, err := strconv.Atoi(variable)
	if err != nil {
		t.Fatalf("%s: %v", seedsEnv, err)
	}
	return n
}
