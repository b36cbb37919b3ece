//go:debug randseednop=0

package main

import (
	"context"
	"flag"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/simulation"
)

// seedsEnv names the variable with the default of -sim.seeds. Other than with a flag of our
// own, the go command remembers that a test has passed.
const seedsEnv = "SIM_SEEDS"

var (
	simSeed  = flag.Uint64("sim.seed", 0, "the only seed of TestSimulation, whose trace is printed")
	simFirst = flag.Uint64("sim.first", 1, "the first seed of TestSimulation")
	simSeeds = flag.Int("sim.seeds", 0, "how many seeds TestSimulation runs in each world; 0 is what $"+seedsEnv+" says, or none")
	simFor   = flag.Duration("sim.for", 0, "for how long TestSimulation runs all of its worlds, instead of a number of seeds")
	simWorld = flag.String("sim.world", "", "the only world of TestSimulation")
	simMost  = flag.Int("sim.failures", 3, "after how many failures TestSimulation ends a world")
	simTwice = flag.Bool("sim.twice", false, "run each history twice, and report whether the requests are the same")
	simPlain = flag.Bool("sim.plain", false, "report failures as they are, instead of making them shorter")
)

// repeated is how often a write can be sent, within the time for edits, that others undo or
// refuse: at once and then after 5 ms, 10 ms, 20 ms, and so on.
const repeated = 16

// TestSimulation runs the program in simulated worlds. See package simulation.
func TestSimulation(t *testing.T) {
	icecreams := apiserver.CustomResource(v1alpha1.Resource("icecreams").WithVersion(v1alpha1.GroupVersion.Version), "Icecream", "deploymentName")
	type world struct {
		controller string
		new        func(*simulation.History) simulation.World
		kinds      []apiserver.Kind
		args       []string
	}
	worlds := []world{
		{"icecream", icecreamWorld, []apiserver.Kind{icecreams, apiserver.Deployments(), apiserver.ReplicaSets(), apiserver.Pods(), apiserver.Namespaces()}, nil},
		{"podtimestamp", podtimestampWorld, []apiserver.Kind{apiserver.Pods()}, nil},
		{"secretsync", secretsyncWorld, []apiserver.Kind{apiserver.Secrets(), apiserver.Namespaces()}, nil},
		{"nodereboot", noderebootWorld, []apiserver.Kind{apiserver.Nodes()}, []string{"-nodereboot-max-unavailable=50%"}},
	}
	worlds = slices.DeleteFunc(worlds, func(w world) bool { return *simWorld != "" && *simWorld != w.controller })
	if len(worlds) == 0 {
		t.Fatalf("-sim.world: there is no %s", *simWorld)
	}
	for _, world := range worlds {
		t.Run(world.controller, func(t *testing.T) {
			simulate(t, *simFor/time.Duration(len(worlds)), simulation.Simulation{
				Run:   func(ctx context.Context, args []string) error { return newProgram().Run(ctx, args) }, // each process its own
				Args:  append([]string{"-controllers=" + world.controller, "-workers=2"}, world.args...),
				Kinds: slices.Concat(world.kinds, []apiserver.Kind{apiserver.Leases(), apiserver.EventObjects()}), NewWorld: world.new,
			})
		})
	}
}

// simulate runs the histories of one world, for a time or else for a number of seeds.
func simulate(t *testing.T, limit time.Duration, s simulation.Simulation) {
	seed, n := *simFirst, seeds(t)
	if *simSeed != 0 {
		seed, n = *simSeed, 1
	}
	if n == 0 && limit == 0 {
		t.Skip("it takes a while: ask for it by -sim.seeds, -sim.for or -sim.seed")
	}
	var total simulation.Result
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
		t.Errorf("failure after %d histories; go test -run '^TestSimulation$' . -sim.seed=%d shows all of this:\n%s", histories, seed, &result)
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
func hasSameRequests(t *testing.T, first, second simulation.Result) bool {
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
