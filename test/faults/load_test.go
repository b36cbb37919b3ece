package faults

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// One Icecream has 50,000 Pods on 5,000 nodes, or PODS on NODES. It takes long, so only FULL=1
// asks for it. The Icecream becomes Ready, and its Pods cost few requests and return their
// memory.
func TestManyPods(t *testing.T) {
	if os.Getenv("FULL") == "" {
		t.Skip("FULL=1 is not set")
	}
	const within = 3 * time.Hour
	nodes, pods := numberIn(t, "NODES", 5_000), numberIn(t, "PODS", 50_000)
	// The race detector multiplies what each Pod costs, and there are not many threads here.
	binary, remove, err := lab.BuildController(t.Context())
	t.Cleanup(func() { _ = remove() })
	if err != nil {
		t.Fatal(err)
	}
	l := lab.New(t, lab.Options{Binary: binary, Nodes: nodes, WithoutSpreading: true})
	n := l.NewNamespace(t)
	c := n.StartController(t, "-insecure-bind-address=127.0.0.1:0")
	n.Create(t, name, v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](1)})
	n.EventuallyReady(t, name)
	before, began := leastHeap(t, c), time.Now()
	n.Kubectl(t, "scale", "icecream", name, fmt.Sprintf("--replicas=%d", pods))
	for end := began.Add(within); lab.IsReady(n.Icecream(t, name)) != nil; time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatalf("the Icecream is not Ready after %s:\n%s", within, n.Describe())
		}
	}
	took := time.Since(began)
	ice := n.Icecream(t, name)
	if ice.Status.NodeCount == 0 || int(ice.Status.AvailableReplicas) != pods {
		t.Errorf("the status is %+v", ice.Status)
	}
	made := n.Requests(t).By(c.User).Resource("icecreams/status").Writes()
	full := leastHeap(t, c)
	t.Logf("%d Pods on %d nodes were Ready after %s, with %d writes of the status, and %.1f MB of memory instead of %.1f",
		pods, nodes, took.Round(time.Second), len(made), full/1e6, before/1e6)
	if most := 10 + int(took.Seconds()); len(made) > most { // one in two seconds, and twice as many
		t.Errorf("the status was written %d times in %s", len(made), took)
	}

	began = time.Now()
	n.Kubectl(t, "scale", "icecream", name, "--replicas=1")
	for end := began.Add(within); ; time.Sleep(time.Second) {
		now := liveHeapOf(t, c)
		if now-before <= (full-before)/2 {
			t.Logf("without them, it had %.1f MB after %s", now/1e6, time.Since(began).Round(time.Second))
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the memory has not been returned: %.1f MB with one Pod, %.1f MB with all, and still %.1f MB", before/1e6, full/1e6, now/1e6)
		}
	}
	n.EventuallyReady(t, name)
}

// numberIn returns the number in an environment variable, or otherwise if it is not set.
func numberIn(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text, isSet := os.LookupEnv(variable)
	if !isSet {
		return otherwise
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return number
}

// leastHeap returns how many bytes of heap a controller needs at rest: the least that the next
// three garbage collections leave. Each leaves what requests need that are being served, too.
func leastHeap(t *testing.T, c *lab.Controller) float64 {
	t.Helper()
	const collections = "go_gc_cycles_total_gc_cycles_total"
	least := math.Inf(1)
	for range 3 {
		for before := metricOf(t, c, collections); metricOf(t, c, collections) == before; time.Sleep(time.Second) {
		}
		least = min(least, liveHeapOf(t, c))
	}
	return least
}

// liveHeapOf returns how many bytes of heap the last garbage collection has left. Even an idle
// process has one every two minutes.
func liveHeapOf(t *testing.T, c *lab.Controller) float64 {
	t.Helper()
	return metricOf(t, c, "go_gc_heap_live_bytes")
}
