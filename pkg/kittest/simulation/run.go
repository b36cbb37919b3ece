package simulation

import (
	"flag"
	"os"
	"strconv"
	"strings"
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
	simTwice = flag.Bool("sim.twice", false, "run each history twice, and report whether the requests are the same")
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
	var total Result
	began, histories, failures, differing := time.Now(), 0, 0, 0
	for ; failures < *simMost; seed++ {
		if limit > 0 && time.Since(began) > limit || limit == 0 && histories == n {
			break
		}
		histories++
		result := s.History(t, seed, nil)
		total.Merge(result)
		if *simTwice && !hasSameRequests(t, result, s.History(t, seed, nil)) {
			differing++
		}
		if *simSeed != 0 {
			t.Log(&result)
		}
		if result.Check == "" {
			continue
		}
		failures++
		if !*simPlain {
			result = s.Shrink(t, result)
		}
		t.Errorf("failure after %d histories; go test -run '^TestSimulation$' -sim.seed=%d shows all of this:\n%s", histories, seed, &result)
	}
	if *simTwice {
		t.Logf("%d of %d histories had other requests when they were run again", differing, histories)
	}
	t.Logf("%d histories in %s: %s simulated, %d requests, %d writes; faults and edits: %s",
		histories, time.Since(began).Round(time.Second), total.Virtual.Round(time.Hour), total.Requests, total.Writes, total.FaultsInWords())
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

// hasSameRequests compares two runs of a history, and says where they part.
func hasSameRequests(t *testing.T, first, second Result) bool {
	t.Helper()
	i := 0
	for i < min(len(first.Sent), len(second.Sent)) && first.Sent[i] == second.Sent[i] {
		i++
	}
	if i == len(first.Sent) && i == len(second.Sent) {
		return true
	}
	t.Logf("seed %d has other requests when it is run again:\n%s\nand then\n%s", first.Seed,
		strings.Join(first.Sent[max(0, i-3):min(i+3, len(first.Sent))], "\n"), strings.Join(second.Sent[max(0, i-3):min(i+3, len(second.Sent))], "\n"))
	return false
}
