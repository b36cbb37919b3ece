package consistency_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
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
				t.Errorf("EnsureReady (-want +got):\n%s", diff)
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
		t.Errorf("EnsureReady (-want +got):\n%s", diff)
	}

	*deploymentsAt = "201"
	want = "the cache does not show this controller's own write yet: " +
		"gadgets.example.com is at resourceVersion 100, but the write is at 202"
	if diff := cmp.Diff(want, text(s.EnsureReady(vanilla))); diff != "" {
		t.Errorf("EnsureReady once one cache has caught up (-want +got):\n%s", diff)
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
		t.Errorf("EnsureReady (-want +got):\n%s", diff)
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
				s.WroteAt(witness, r, "1") // reads where the cache was
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
					t.Fatalf("EnsureReady(%s) = %v, the model says %t", o, err, m.missing(o))
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
