package explore

import (
	"slices"
	"strconv"
	"sync"
)

// action is what one step lets happen.
type action byte

const (
	begins    action = iota // a process begins to lead: its loop reads its first keys
	sees                    // a cache sees an event
	fills                   // a cache is filled anew
	syncs                   // a worker begins a sync
	continues               // a response arrives
	passes                  // time passes
	answers                 // the server carries out a request
	acts                    // somebody else does something
)

// situation is everything that one step depends on. What happens in it is worked out once.
type situation struct {
	action action
	phase  phase
	arg    int64 // the number of a cache or an actor; nanoseconds that pass; 1 for a sync that is behind
	event  eventKind
	key    int32    // of the object that an event is about; the name of the one that is synced, as a template
	caches []cached // of a process, or the store
	memory text
	extra  text // a request, a response, or the object of an event
	// relisted is what a cache is filled with, which compose has with the caches.
	relisted *cached
}

// situations keep situations as texts. They are safe for concurrent use.
type situations struct {
	*templates
	mu     sync.RWMutex
	shapes map[int32]situation
}

func newSituations() *situations {
	return &situations{templates: newTemplates(), shapes: map[int32]situation{}}
}

// compose returns the situation as a text. Its template names those of its parts.
func (s *situations) compose(sit situation) text {
	b := make([]byte, 0, 256)
	values := make([]int64, 0, 64)
	number := func(n int64, end byte) { b = append(strconv.AppendInt(b, n, 10), end) }
	add := func(x text) {
		number(int64(x.template), ' ')
		for _, g := range s.get(x.template).gaps {
			b = appendGap(b, g)
		}
		values = append(values, x.values...)
	}
	for _, n := range [...]int64{int64(sit.action), int64(sit.phase), sit.arg, int64(sit.event), int64(sit.key)} {
		number(n, ' ')
	}
	for _, c := range sit.caches {
		b = append(b, '|')
		if c.class != 0 {
			b = appendGap(b, gap{versionGap, c.class})
			values = append(values, c.version)
		}
		for _, o := range c.objects {
			number(int64(o.key), '=')
			add(o.text)
		}
	}
	b = append(b, ';')
	add(sit.memory)
	add(sit.extra)
	x := text{s.id(b), values}
	s.mu.RLock()
	_, ok := s.shapes[x.template]
	s.mu.RUnlock()
	if !ok {
		s.mu.Lock()
		s.shapes[x.template] = sit
		s.mu.Unlock()
	}
	return x
}

// decompose returns the situation that was made a text.
func (s *situations) decompose(x text) situation {
	s.mu.RLock()
	sit := s.shapes[x.template]
	s.mu.RUnlock()
	values := x.values
	take := func(like text) text {
		n := len(s.get(like.template).gaps)
		part := text{like.template, slices.Clip(values[:n])}
		values = values[n:]
		return part
	}
	sit.caches = slices.Clone(sit.caches)
	for i := range sit.caches {
		c := cached{class: sit.caches[i].class}
		if c.class != 0 {
			c.version, values = values[0], values[1:]
		}
		for _, o := range sit.caches[i].objects {
			c.objects = append(c.objects, object{o.key, take(o.text)})
		}
		sit.caches[i] = c
	}
	sit.memory = take(sit.memory)
	sit.extra = take(sit.extra)
	return sit
}

// reads are the caches whose objects were read, by their numbers.
type reads uint8

const everything = ^reads(0)

func (r reads) has(cache int) bool { return r&(1<<cache) != 0 }

// reduced returns the situation without the objects of other caches than these.
func (s situation) reduced(to reads) situation {
	s.caches = slices.Clone(s.caches)
	for i := range s.caches {
		if !to.has(i) {
			s.caches[i].objects = nil
		}
	}
	return s
}

// readsOf is a kind of situations, of which many read the same.
type readsOf struct {
	program int
	action  action
	arg     int64
}

// readsSeen are what was read in the situations of each kind. It is safe for concurrent use.
type readsSeen struct {
	mu  sync.RWMutex
	all map[readsOf][]reads
}

func (s *readsSeen) get(of readsOf) []reads {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.all[of]
}

func (s *readsSeen) add(of readsOf, read reads) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[readsOf][]reads{}
	}
	if !slices.Contains(s.all[of], read) {
		s.all[of] = append(slices.Clip(s.all[of]), read)
	}
}
