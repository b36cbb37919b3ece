package consistency_test

import (
	"strconv"
	"strings"
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

// lags returns the error about a cache of Deployments.
func lags(at, write string) string {
	return "the cache does not show this controller's own write yet: deployments.apps is at resourceVersion " + at + ", but the write is at " + write
}

func TestEnsureReady(t *testing.T) {
	for name, tt := range map[string]struct {
		written []string // to vanilla's Deployments, in this order
		seen    string   // by the cache of Deployments
		want    string   // the error; "" for none
	}{
		"nothing was written":                             {nil, "100", ""},
		"the write has not arrived":                       {[]string{"101"}, "100", lags("100", "101")},
		"the write has just arrived":                      {[]string{"101"}, "101", ""},
		"the write has been overtaken":                    {[]string{"101"}, "102", ""},
		"versions are numbers, not text":                  {[]string{"101"}, "99", lags("99", "101")},
		"versions may be longer than any integer":         {[]string{huge + "7"}, huge + "6", lags(huge+"6", huge+"7")},
		"only the first of two writes has arrived":        {[]string{"101", "103"}, "102", lags("102", "103")},
		"the newest write counts, whichever was last":     {[]string{"103", "101"}, "102", lags("102", "103")},
		"a write without a version is not waited for":     {[]string{""}, "100", ""},
		"a version that is no number is not waited for":   {[]string{"0x99"}, "100", ""},
		"a cache that tells no version is not waited for": {[]string{"101"}, "", ""},
		"version 0 never is an object's":                  {[]string{"101"}, "0", ""},
	} {
		t.Run(name, func(t *testing.T) {
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

const huge = "34028236692093846346337460743176821145"

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
	const gadgetsLag = "gadgets.example.com is at resourceVersion 100, but the write is at 202"
	if diff := cmp.Diff(lags("100", "201")+"; "+gadgetsLag, text(s.EnsureReady(vanilla))); diff != "" {
		t.Errorf("EnsureReady (-want +got):\n%s", diff)
	}
	*deploymentsAt = "201"
	if err := s.EnsureReady(vanilla); err == nil || !strings.HasSuffix(err.Error(), ": "+gadgetsLag) {
		t.Errorf("once one cache has caught up, EnsureReady = %v", err)
	}
}

// The response to the next write may be the first sign of a restore.
func TestWriteAfterARestoreIsKept(t *testing.T) {
	s, deploymentsAt, _ := newStore()
	*deploymentsAt = "1000"
	s.WroteAt(vanilla, deployments, "1001")
	*deploymentsAt = "500"
	s.WroteAt(vanilla, deployments, "501")
	if diff := cmp.Diff(lags("500", "501"), text(s.EnsureReady(vanilla))); diff != "" {
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
	var writing sync.WaitGroup
	for i := range 8 {
		writing.Go(func() {
			owner := cache.NewObjectName("default", strconv.Itoa(i%3))
			s.WroteAt(owner, deployments, "101")
			_ = s.EnsureReady(owner)
			s.Clear(owner)
			s.WroteAt(vanilla, deployments, strconv.Itoa(101+i))
		})
	}
	writing.Wait()
	if diff := cmp.Diff(lags("100", "108"), text(s.EnsureReady(vanilla))); diff != "" {
		t.Errorf("EnsureReady (-want +got):\n%s", diff)
	}
}
