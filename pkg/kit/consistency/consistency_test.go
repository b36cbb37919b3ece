package consistency_test

import (
	"fmt"
	"math/big"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/kit/consistency"
)

var (
	deployments = schema.GroupResource{Group: "apps", Resource: "deployments"}
	gadgets     = schema.GroupResource{Group: "example.com", Resource: "gadgets"}

	vanilla   = cache.NewObjectName("default", "vanilla")
	chocolate = cache.NewObjectName("default", "chocolate")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// at is a cache that has seen a resource version.
type at string

func (a *at) LastStoreSyncResourceVersion() string { return string(*a) }

func newStore() (s *consistency.Store, deploymentsAt, gadgetsAt *at) {
	deploymentsAt, gadgetsAt = new(at), new(at)
	*deploymentsAt, *gadgetsAt = "100", "100"
	return consistency.New(map[schema.GroupResource]consistency.Seen{
		deployments: deploymentsAt,
		gadgets:     gadgetsAt,
	}), deploymentsAt, gadgetsAt
}

func TestEnsureReady(t *testing.T) {
	tests := []struct {
		name    string
		written []string // to vanilla's Deployments, in this order
		seen    string   // by the cache of Deployments
		want    string   // the error; "" for none
	}{{
		name: "nothing was written",
		seen: "100",
	}, {
		name:    "the write has not arrived",
		written: []string{"101"},
		seen:    "100",
		want:    "the cache does not show this controller's own write yet: deployments.apps is at resourceVersion 100, but the write is at 101",
	}, {
		name:    "the write has just arrived",
		written: []string{"101"},
		seen:    "101",
	}, {
		name:    "the write has been overtaken",
		written: []string{"101"},
		seen:    "102",
	}, {
		name:    "versions are numbers, not text",
		written: []string{"101"},
		seen:    "99",
		want:    "the cache does not show this controller's own write yet: deployments.apps is at resourceVersion 99, but the write is at 101",
	}, {
		name:    "versions may be longer than any integer",
		written: []string{"340282366920938463463374607431768211457"},
		seen:    "340282366920938463463374607431768211456",
		want: "the cache does not show this controller's own write yet: deployments.apps is at resourceVersion " +
			"340282366920938463463374607431768211456, but the write is at 340282366920938463463374607431768211457",
	}, {
		name:    "only the first of two writes has arrived",
		written: []string{"101", "103"},
		seen:    "102",
		want:    "the cache does not show this controller's own write yet: deployments.apps is at resourceVersion 102, but the write is at 103",
	}, {
		name:    "the newest write counts, whichever was recorded last",
		written: []string{"103", "101"},
		seen:    "102",
		want:    "the cache does not show this controller's own write yet: deployments.apps is at resourceVersion 102, but the write is at 103",
	}, {
		name:    "a write without a version is not waited for",
		written: []string{""},
		seen:    "100",
	}, {
		name:    "a version that is no number is not waited for",
		written: []string{"0x99"},
		seen:    "100",
	}, {
		name:    "a version that is no number displaces none that is",
		written: []string{"101", "zzz"},
		seen:    "100",
		want:    "the cache does not show this controller's own write yet: deployments.apps is at resourceVersion 100, but the write is at 101",
	}, {
		name:    "a version that is no number stands in nobody's way",
		written: []string{"zzz", "101"},
		seen:    "100",
		want:    "the cache does not show this controller's own write yet: deployments.apps is at resourceVersion 100, but the write is at 101",
	}, {
		name:    "a cache that does not tell its version is not waited for",
		written: []string{"101"},
		seen:    "",
	}, {
		name:    "version 0 never is an object's",
		written: []string{"101"},
		seen:    "0",
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, deploymentsAt, _ := newStore()
			*deploymentsAt = at(tt.seen)
			for _, version := range tt.written {
				s.WroteAt(vanilla, deployments, version)
			}
			if diff := cmp.Diff(tt.want, text(s.EnsureReady(vanilla))); diff != "" {
				t.Errorf("Missing (-want +got):\n%s", diff)
			}
			if err := s.EnsureReady(chocolate); err != nil {
				t.Errorf("another owner has to wait: %v", err)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestEnsureReadyNamesEveryStaleCache(t *testing.T) {
	s, deploymentsAt, _ := newStore()
	s.WroteAt(vanilla, gadgets, "202")
	s.WroteAt(vanilla, deployments, "201")
	want := "the cache does not show this controller's own write yet: " +
		"deployments.apps is at resourceVersion 100, but the write is at 201; " +
		"gadgets.example.com is at resourceVersion 100, but the write is at 202"
	if diff := cmp.Diff(want, text(s.EnsureReady(vanilla))); diff != "" {
		t.Errorf("Missing (-want +got):\n%s", diff)
	}

	*deploymentsAt = "201"
	want = "the cache does not show this controller's own write yet: " +
		"gadgets.example.com is at resourceVersion 100, but the write is at 202"
	if diff := cmp.Diff(want, text(s.EnsureReady(vanilla))); diff != "" {
		t.Errorf("Missing once one cache has caught up (-want +got):\n%s", diff)
	}
}

func TestRecordsAreDroppedOnceSeen(t *testing.T) {
	s, deploymentsAt, _ := newStore()
	s.WroteAt(vanilla, deployments, "101")
	*deploymentsAt = "101"
	if err := s.EnsureReady(vanilla); err != nil {
		t.Fatal(err)
	}
	*deploymentsAt = "100"
	if err := s.EnsureReady(vanilla); err != nil {
		t.Errorf("the record was kept: %v", err)
	}
}

// The server's data was restored from a backup, so its versions are lower than those in the
// responses to the controller's writes, and may be so for days.
// An echo is one only once, and only if nobody waits for it.
func TestIsEcho(t *testing.T) {
	s, deploymentsAt, _ := newStore()
	s.WroteAt(vanilla, deployments, "201")
	for _, other := range []struct {
		owner    cache.ObjectName
		resource schema.GroupResource
		version  string
	}{{chocolate, deployments, "201"}, {vanilla, gadgets, "201"}, {vanilla, deployments, "202"}, {vanilla, deployments, ""}} {
		if s.IsEcho(other.owner, other.resource, other.version) {
			t.Errorf("%+v is taken for the echo of another write", other)
		}
	}
	*deploymentsAt = "201"
	if !s.IsEcho(vanilla, deployments, "201") || s.IsEcho(vanilla, deployments, "201") {
		t.Error("the write is not its echo, or twice")
	}

	s.WroteAt(vanilla, deployments, "301")
	if s.EnsureReady(vanilla) == nil {
		t.Fatal("the cache does not show the write, but it is taken for ready")
	}
	*deploymentsAt = "301"
	if s.IsEcho(vanilla, deployments, "301") {
		t.Error("a sync waits for the write, and nobody would tell it")
	}
	if err := s.EnsureReady(vanilla); err != nil {
		t.Error(err)
	}
	s.WroteAt(vanilla, deployments, "401")
	*deploymentsAt = "401"
	if !s.IsEcho(vanilla, deployments, "401") {
		t.Error("nobody waits any more, but the write is no echo")
	}
}

func TestRestoreFromBackupDropsRecords(t *testing.T) {
	s, deploymentsAt, gadgetsAt := newStore()
	*deploymentsAt = "1000"
	s.WroteAt(vanilla, deployments, "1001")
	s.WroteAt(vanilla, gadgets, "101")
	s.WroteAt(chocolate, deployments, "1002")
	if s.EnsureReady(vanilla) == nil || s.EnsureReady(chocolate) == nil {
		t.Fatal("nobody waits for the caches")
	}

	*deploymentsAt = "500"
	want := "the cache does not show this controller's own write yet: gadgets.example.com is at resourceVersion 100, but the write is at 101"
	if diff := cmp.Diff(want, text(s.EnsureReady(vanilla))); diff != "" {
		t.Errorf("Missing once one cache has gone backward (-want +got):\n%s", diff)
	}
	if err := s.EnsureReady(chocolate); err != nil {
		t.Errorf("another owner's record was kept: %v", err)
	}

	*gadgetsAt = "101"
	s.WroteAt(vanilla, deployments, "501")
	if s.EnsureReady(vanilla) == nil {
		t.Error("a write since then is not waited for")
	}
	*deploymentsAt = "501"
	if err := s.EnsureReady(vanilla); err != nil {
		t.Error(err)
	}
}

// The response to the next write may be the first sign of a restore.
func TestWriteAfterARestoreIsKept(t *testing.T) {
	s, deploymentsAt, _ := newStore()
	*deploymentsAt = "1000"
	s.WroteAt(vanilla, deployments, "1001")
	*deploymentsAt = "500"
	s.WroteAt(vanilla, deployments, "501")
	want := "the cache does not show this controller's own write yet: deployments.apps is at resourceVersion 500, but the write is at 501"
	if diff := cmp.Diff(want, text(s.EnsureReady(vanilla))); diff != "" {
		t.Errorf("Missing (-want +got):\n%s", diff)
	}
}

func TestClear(t *testing.T) {
	s, _, _ := newStore()
	s.WroteAt(vanilla, deployments, "101")
	s.WroteAt(chocolate, deployments, "101")
	s.Clear(vanilla)
	if err := s.EnsureReady(vanilla); err != nil {
		t.Errorf("a forgotten owner has to wait: %v", err)
	}
	if err := s.EnsureReady(chocolate); err == nil {
		t.Error("another owner was forgotten too")
	}
}

func TestWroteAtPanicsForAnUnknownResource(t *testing.T) {
	defer func() {
		want := "consistency: no cache for secrets, which was written to for default/vanilla"
		if diff := cmp.Diff(want, fmt.Sprint(recover())); diff != "" {
			t.Errorf("panic (-want +got):\n%s", diff)
		}
	}()
	s, _, _ := newStore()
	s.WroteAt(vanilla, schema.GroupResource{Resource: "secrets"}, "101")
}

// The caches that controllers pass are client-go's.
func TestStoresOfClientGoImplementSeen(t *testing.T) {
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	resource := schema.GroupResource{Resource: "pods"}
	s := consistency.New(map[schema.GroupResource]consistency.Seen{resource: pods})
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "scoop", ResourceVersion: "7"}}
	if err := pods.Add(object); err != nil {
		t.Fatal(err)
	}
	s.WroteAt(vanilla, resource, "8")
	if s.EnsureReady(vanilla) == nil {
		t.Error("a store at 7 has seen 8")
	}
	object = object.DeepCopy()
	object.ResourceVersion = "8"
	if err := pods.Update(object); err != nil {
		t.Fatal(err)
	}
	if err := s.EnsureReady(vanilla); err != nil {
		t.Error(err)
	}
}

// model is the obvious implementation: it keeps every write forever, and looks through all
// of them. A Store differs only in memory.
type model struct {
	writes map[cache.ObjectName]map[schema.GroupResource][]int
	seen   map[schema.GroupResource]int
}

func (m *model) missing(owner cache.ObjectName) bool {
	for resource, writes := range m.writes[owner] {
		for _, version := range writes {
			if version > m.seen[resource] {
				return true
			}
		}
	}
	return false
}

func TestStoreAgreesWithItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, deploymentsAt, gadgetsAt := newStore()
		caches := map[schema.GroupResource]*at{deployments: deploymentsAt, gadgets: gadgetsAt}
		m := model{
			writes: map[cache.ObjectName]map[schema.GroupResource][]int{vanilla: {}, chocolate: {}},
			seen:   map[schema.GroupResource]int{deployments: 100, gadgets: 100},
		}
		witness := cache.NewObjectName("default", "witness")
		owner := rapid.SampledFrom([]cache.ObjectName{vanilla, chocolate})
		resource := rapid.SampledFrom([]schema.GroupResource{deployments, gadgets})
		t.Repeat(map[string]func(*rapid.T){
			"record": func(t *rapid.T) {
				o, r, version := owner.Draw(t, "owner"), resource.Draw(t, "resource"), rapid.IntRange(1, 1100).Draw(t, "version")
				s.WroteAt(o, r, strconv.Itoa(version))
				m.writes[o][r] = append(m.writes[o][r], version)
			},
			"the cache moves on": func(t *rapid.T) {
				r := resource.Draw(t, "resource")
				m.seen[r] += rapid.IntRange(0, 100).Draw(t, "by")
				*caches[r] = at(strconv.Itoa(m.seen[r]))
			},
			"the server is restored": func(t *rapid.T) {
				r := resource.Draw(t, "resource")
				before := m.seen[r]
				m.seen[r] = rapid.IntRange(1, before).Draw(t, "to")
				s.WroteAt(witness, r, "1") // for a look at where the cache was
				*caches[r] = at(strconv.Itoa(m.seen[r]))
				s.WroteAt(witness, r, "1")
				for _, writes := range m.writes {
					if m.seen[r] < before {
						delete(writes, r)
					}
				}
			},
			"forget": func(t *rapid.T) {
				o := owner.Draw(t, "owner")
				s.Clear(o)
				m.writes[o] = map[schema.GroupResource][]int{}
			},
			"ask": func(t *rapid.T) {
				o := owner.Draw(t, "owner")
				if err := s.EnsureReady(o); (err != nil) != m.missing(o) {
					t.Fatalf("Missing(%s) = %v, the model says %t", o, err, m.missing(o))
				}
			},
		})
	})
}

func TestConcurrentUse(t *testing.T) {
	s, _, _ := newStore()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 500 {
				owner := cache.NewObjectName("default", strconv.Itoa(i%7))
				s.WroteAt(owner, deployments, strconv.Itoa(100+w))
				_ = s.EnsureReady(owner)
				if i%50 == 0 {
					s.Clear(owner)
				}
			}
		})
	}
	wg.Wait()
	s.WroteAt(vanilla, deployments, "101")
	if s.EnsureReady(vanilla) == nil {
		t.Error("a write got lost")
	}
}

// For any strings, the newest write with a numeric version is waited for until the cache's
// version is a number at least as high. Nothing else is waited for.
func FuzzMissing(f *testing.F) {
	for _, seed := range [][3]string{
		{"101", "102", "100"},
		{"9", "10", "9"},
		{"", "x", "1"},
		{"x", "101", "100"},
		{"1", "01", "0"},
		{"-1", "+1", " 1"},
		{"18446744073709551616", "18446744073709551615", "18446744073709551615"},
		{"١", "1", "1"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, first, second, seen string) {
		s, deploymentsAt, _ := newStore()
		*deploymentsAt = at(seen)
		s.WroteAt(vanilla, deployments, first)
		s.WroteAt(vanilla, deployments, second)

		newest := number(first)
		if n := number(second); n != nil && (newest == nil || n.Cmp(newest) > 0) {
			newest = n
		}
		reached := number(seen)
		want := newest != nil && reached != nil && reached.Cmp(newest) < 0
		if err := s.EnsureReady(vanilla); (err != nil) != want {
			t.Errorf("written %q and %q, seen %q: Missing = %v, want an error: %t", first, second, seen, err, want)
		}
	})
}

// number reads a resource version as a positive decimal number without leading
// zeros; nil if it is none.
func number(version string) *big.Int {
	n, ok := new(big.Int).SetString(version, 10)
	if !ok || n.Sign() <= 0 || n.String() != version {
		return nil
	}
	return n
}

func TestEnsureReadyAllocatesNothing(t *testing.T) {
	s, _, _ := newStore()
	ask := func() {
		if err := s.EnsureReady(vanilla); err != nil {
			t.Fatal(err)
		}
	}
	if allocs := testing.AllocsPerRun(1000, ask); allocs != 0 {
		t.Errorf("Missing without records: %v allocations, want 0", allocs)
	}
	write := func() {
		s.WroteAt(vanilla, deployments, "100")
		s.WroteAt(vanilla, gadgets, "100")
		ask()
	}
	if allocs := testing.AllocsPerRun(1000, write); allocs > 2 {
		t.Errorf("two records and Missing: %v allocations, want at most the 2 of a growing slice", allocs)
	}
}

func BenchmarkMissing(b *testing.B) {
	for _, bb := range []struct{ name, version string }{
		{"nothing recorded", ""},
		{"recorded and seen", "100"},
		{"recorded and behind", "101"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			s, _, _ := newStore()
			b.ReportAllocs()
			for b.Loop() {
				s.WroteAt(vanilla, deployments, bb.version)
				_ = s.EnsureReady(vanilla)
			}
		})
	}
}
